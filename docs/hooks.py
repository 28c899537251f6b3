"""What MkDocs is told beyond Markdown: pages made from the code, equations, and links to source files that work here.

Pages that are made: a page for each command from its help, the notebook, the changelog, and every source file that
another page links to (`../src/normmatch/model/network.py`, as a browser of the repository follows it as well).
"""

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "match", "locate", "label", "propagate", "convert", "check", "compare", "forecast", "demo", "samples", "eval",
    "train small", "quickstart", "ablate", "export", "data download", "data prepare", "data check", "bench model",
    "bench train", "bench data", "bench peers",
)  # fmt: skip
WIDTH = 100  # of the commands' help, in letters
LINK = re.compile(r"(\]\(|href=\")((?:\.\./)+)((?:src|recipes|tests)/[^)\"#]+|[\w-]+\.(?:md|toml|txt)|Makefile)")
LANGUAGES = {".py": "python", ".sh": "bash", ".js": "javascript", ".md": "markdown", ".toml": "toml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = {
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        "tutorials/notebook.md": notebook((ROOT / "docs" / "normmatch.ipynb").read_text(encoding="utf-8")),
    }
    for page in list(files.documentation_pages()):
        folder = PurePosixPath(page.src_uri).parent
        for _, up, target in LINK.findall(page.content_string):
            name = os.path.normpath(f"docs/{folder}/{up}{target}")
            path = ROOT / name
            if path.is_dir():
                path = next((path / f for f in ("README.md", "__init__.py") if (path / f).is_file()), path)
            if (path.is_file() and path.suffix in LANGUAGES) or path.name == "Makefile":
                made[f"source/{path.relative_to(ROOT).as_posix()}.md"] = source(path)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the commands, draw pictures that have links in them into the page, set equations, lead links right."""
    if "{{ commands }}" in markdown:
        markdown = markdown.replace("{{ commands }}", "\n\n".join(commands()))
    markdown = re.sub(r"!\[([^\]]*)\]\((\S+\.svg)\)\{ *\.linked *\}", lambda m: drawn(m, page), markdown)
    markdown = re.sub(r"\$\$(.+?)\$\$", lambda m: equation(m[1], "block"), markdown, flags=re.DOTALL)
    markdown = re.sub(r"\\\((.+?)\\\)", lambda m: equation(m[1], "inline"), markdown)
    if page.file.src_uri.startswith("source/"):
        return markdown
    folder = PurePosixPath(page.file.src_uri).parent
    return LINK.sub(lambda m: led(m, folder, files), markdown)


def led(link: re.Match[str], folder: PurePosixPath, files: Files) -> str:
    """A link to a file of the repository as one to its page here."""
    start, up, target = link.groups()
    name = os.path.normpath(f"docs/{folder}/{up}{target}")
    for ending in ("", "/README.md", "/__init__.py"):
        page = files.get_file_from_path(f"source/{name}{ending}.md")
        if page:
            ending = ".html" if start.startswith("href") else ".md"
            return start + os.path.relpath(page.src_uri, folder or ".").removesuffix(".md") + ending
    return link[0]


def source(path: Path) -> str:
    """A file of the repository as a page."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8").replace("$$", "$ $")
    head = f"---\ntitle: {name}\nsearch: {{exclude: true}}\nhide: [navigation]\n---\n\n# {name}\n\n"
    return f"{head}~~~~~~{LANGUAGES.get(path.suffix, 'text')}\n{text}\n~~~~~~\n"


def drawn(picture: re.Match[str], page: Page) -> str:
    """An SVG in the page itself, so that its boxes can be links."""
    path = ROOT / "docs" / PurePosixPath(page.file.src_uri).parent / picture[2]
    svg = re.sub(r"<\?xml.*?\?>\s*|\n\s*\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return f'<div role="img" aria-label="{picture[1]}">{svg.strip()}</div>'


def equation(latex: str, display: str) -> str:
    return latex2mathml.converter.convert(" ".join(latex.split()), display=display)


def notebook(text: str) -> str:
    """A notebook as a page: its words and its code."""
    parts = []
    for cell in json.loads(text)["cells"]:
        content = "".join(cell["source"])
        parts.append(content if cell["cell_type"] == "markdown" else f"```python\n{content}\n```")
    return "\n\n".join(parts)


def commands() -> Iterator[str]:
    """Each command with its help, as the shell shows it."""
    for name in COMMANDS:
        yield f"## normmatch {name}\n\n```text\n{help_of(name.split())}\n```"


def help_of(words: list[str]) -> str:
    from normmatch.commands import main

    said = io.StringIO()
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1", TERM="dumb")
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return re.sub(r"\x1b\[[\d;]*m", "", said.getvalue()).strip()


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Nothing is asked of other hosts."""
    config.extra["generator"] = False
    return env
