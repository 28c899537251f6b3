"""What `match` prints."""

import numpy as np
import pytest

from normmatch.annotations import Annotation
from normmatch.matching.record import print_matches


@pytest.mark.parametrize(("names", "said"), [(("nose", "ear"), True), (("0", "1"), False)])
def test_points_without_names_have_no_namesakes(
    names: tuple[str, ...], said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those are called by their numbers, which say nothing about who is who."""
    points = Annotation("a.png", names, np.zeros((2, 2)))
    scores = np.array([0.9, 0.8])
    result = {"matches0": np.array([0, 1]), "matching_scores0": scores, "matches": np.array([[0, 0], [1, 1]])}
    print_matches(points, points, result)
    out = capsys.readouterr().out
    assert "2 of 2 points have a partner" in out
    assert ("2 of the 2 points with a namesake" in out) == said
