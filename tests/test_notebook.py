"""The notebook runs from top to bottom, and is kept without what it prints."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from normmatch import PRESETS, NormMatch

FILE = Path(__file__).parents[1] / "docs" / "normmatch.ipynb"


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return nbformat.read(FILE, as_version=4)


def test_it_is_kept_without_outputs(notebook: nbformat.NotebookNode) -> None:
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_it_runs(notebook: nbformat.NotebookNode, tmp_path: Path) -> None:
    NormMatch(PRESETS["tiny"]).save_pretrained(tmp_path / "weights")
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.source.count('weights = "small"') == 1
    first.source = first.source.replace('"small"', repr(str(tmp_path / "weights")))  # the bundled network takes longer
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output.output_type for output in outputs if output.output_type not in ("stream", "display_data")] == [
        "execute_result",
        "execute_result",
    ]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert printed.count("->") == 6  # the cat's points
    assert "raccoon and astronaut: " in printed
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
