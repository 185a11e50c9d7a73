"""Every ``python`` example in README.md and docs/ runs as it stands.

The blocks of one page run in order and share their names, in an empty folder.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> list[str]:
    """The blocks, each moved down to its own lines, so that a traceback names the page's line."""
    return [
        "\n" * text.count("\n", 0, found.start(1)) + found.group(1)
        for found in FENCE.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = examples(page.read_text())
    assert blocks, f"{page.name} shows nothing that runs"
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


def test_a_wrong_example_is_found_with_its_line() -> None:
    text = "# Page\n\n```python\nx = 1\n```\n\n```text\nnot python\n```\n"
    text += "\n```python\nassert x == 2\n```\n"
    blocks = examples(text)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    exec(compile(blocks[0], "page.md", "exec"), names)
    with pytest.raises(AssertionError) as failure:
        exec(compile(blocks[1], "page.md", "exec"), names)
    assert failure.traceback[-1].lineno == 11  # from 0
