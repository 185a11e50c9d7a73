"""Figures and pictures that programs make for the documentation are current, and error texts that a
page quotes occur in the sources.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = (ROOT / "benches" / "RESULTS.md").read_text()


def program(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["figures", "pictures"])
def test_the_committed_pages_are_the_generated_ones(name: str) -> None:
    command = [sys.executable, str(ROOT / "docs" / f"{name}.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run docs/{name}.py\n{done.stdout}{done.stderr}"


def test_every_file_with_figures_has_its_block() -> None:
    figures = program("figures")
    found = [figures.BLOCK.findall((ROOT / name).read_text()) for name in figures.FILES]
    assert [[name for _, name, _ in blocks] for blocks in found] == [["screen"], ["peers"]]


def test_another_figure_is_copied_to_its_place() -> None:
    figures = program("figures")
    row = "| put, one row | empty | 559 ns |"
    text = "a\n<!-- figures: screen -->\nstale figures\n<!-- end of figures -->\nb\n"
    made = figures.filled(
        text, re.sub(r"(\| put, one row \| empty \|)[^|]*\|", r"\1 7 ns |", RESULTS)
    )
    assert row not in made
    assert "| `put` of one row, accepted | 7 ns |" in made
    assert made.startswith("a\n")
    assert made.endswith("\nb\n")
    assert "stale figures" not in made


def test_words_that_do_not_fit_into_a_picture_are_refused() -> None:
    pictures = program("pictures")
    fits = "boxes T\nbox a 1 1 20 5: short\nbox b 1 20 20 5: x\na -> b\n"
    assert pictures.draw(fits) == pictures.draw(fits)
    for wrong in ("boxes T\nbox a 1 1 5 5: far too long", "boxes T\nunknown", "sequence T\nA > B"):
        with pytest.raises(ValueError, match=r"needs|not a line"):
            pictures.draw(wrong)


def test_there_are_five_pictures_and_each_is_shown() -> None:
    there = {path.name for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert set(re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+\.svg)\)", pages)) == there
    assert len(there) == 5


# --- Troubleshooting -----------------------------------------------------------------------------


def quoted() -> list[str]:
    """The error texts of docs/troubleshooting.md."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    return re.findall(r"^\| `([^`]+)` \((?:\w|, | |`)+\) \|", page, re.MULTILINE)


def sources() -> str:
    """The sources of the product, with the line breaks inside of texts removed."""
    paths = [*(ROOT / "crates").glob("*/src/**/*.rs"), *(ROOT / "python").rglob("*.py")]
    text = "\n".join(path.read_text() for path in paths)
    return re.sub(r"\\\n\s*", "", text)


def unknown(texts: list[str], code: str) -> list[str]:
    """The texts that do not occur in `code`; `…` stands for a part that the code inserts."""
    found = []
    for text in texts:
        parts = [re.escape(part.strip()) for part in text.split("…") if part.strip()]
        if not re.search(r"[^\"\n]{0,40}".join(parts), code):
            found.append(text)
    return found


def test_quoted_error_texts_occur_in_the_sources() -> None:
    texts = quoted()
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert len(texts) == len(re.findall(r"^\| `", page, re.MULTILINE)) >= 25
    assert unknown(texts, sources()) == []


def test_a_changed_error_text_is_found() -> None:
    code = '"L0 has {} layers (l0_max_ssts {}); {}"'
    assert unknown(["L0 has … layers (l0_max_ssts …)"], code) == []
    assert unknown(["L0 had … layers"], code) == ["L0 had … layers"]
