"""docs/reference.py documents every public name of the built package, and writes only its pages."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone
from siltstone import _native

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "reference.py"


@pytest.fixture(scope="module")
def reference():
    """The program, as a module."""
    spec = importlib.util.spec_from_file_location("reference", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(monkeypatch: pytest.MonkeyPatch, reference, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), *arguments])
    return reference.main()


def test_pages_are_written_and_checked(
    reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    folder = tmp_path / "reference"
    monkeypatch.setattr(reference, "FOLDER", folder)
    assert run(monkeypatch, reference, "--check") == 1
    assert not folder.exists()
    assert run(monkeypatch, reference) == 0
    pages = reference.pages()
    assert {path.name: path.read_text() for path in folder.iterdir()} == pages
    assert run(monkeypatch, reference, "--check") == 0
    (folder / "keys.md").write_text("an older page")
    (folder / "gone.md").write_text("of a module that is gone")
    capsys.readouterr()
    assert run(monkeypatch, reference, "--check") == 1
    assert capsys.readouterr().out == "out of date: gone.md\nout of date: keys.md\n"
    assert run(monkeypatch, reference) == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == pages


def test_git_holds_no_page_of_the_reference() -> None:
    command = ["git", "-C", str(ROOT), "ls-files", "docs/reference"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a clone")
    assert done.stdout == ""


def test_every_public_name_is_there(reference) -> None:
    pages = reference.pages()
    everything = "\n".join(pages.values())
    for name in set(siltstone.__all__) - {
        "__version__",
        "admin",
        "aio",
        "changes",
        "compaction",
        "ingest",
        "keys",
        "lsm",
        "table",
        "Options",
        "Stats",
    }:
        assert f"\n### {name}\n" in everything or f"\n### class {name}" in everything, name
    for name, *_ in _native.option_table():
        assert f"| `{name}` |" in pages["options.md"]
    for name, *_ in _native.stat_table():
        assert f"| `{name}` |" in pages["stats.md"]
    for name in siltstone.admin.__all__:
        page = pages["admin.md"]
        assert f"\n### {name}\n" in page or f"\n### class {name}" in page, name
    for name in ("get", "put", "scan", "stats"):
        assert f"## siltstone {name}\n" in pages["command-line.md"]


# Public modules whose names are documented on another page, with that page.
DOCUMENTED_ELSEWHERE = {"siltstone.cli": "command-line.md"}


def public_modules() -> list[str]:
    """Every module of the package without a private part in its path."""
    package = Path(siltstone.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            found.append(".".join(("siltstone", *parts)))
    return found


@pytest.mark.parametrize("name", public_modules())
def test_a_module_without_underscore_is_public_and_documented(name: str, reference) -> None:
    page = DOCUMENTED_ELSEWHERE.get(name, f"{name.removeprefix('siltstone.')}.md")
    assert page in reference.pages(), "begin the module's name with an underscore, or document it"
    module = importlib.import_module(name)
    assert module.__doc__
    assert module.__all__
    for public in module.__all__:
        found = getattr(module, public)
        if inspect.isclass(found) or inspect.isroutine(found):
            assert inspect.getdoc(found), public


def test_everything_there_says_what_it_is(reference) -> None:
    for name, page in reference.pages().items():
        assert page.startswith(reference.MADE)
        if name != "command-line.md":
            # A signature that is directly followed by the next heading.
            assert re.findall(r"(?<=```text\n)[^`]*```\n\n#.*", page) == [], name


def test_missing_features_say_so(reference) -> None:
    unbuilt = [
        node
        for top in reference.STUB.body
        if isinstance(top, ast.ClassDef)
        for node in top.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.returns is not None
        and ast.unparse(node.returns) == "NoReturn"
    ]
    assert [node.name for node in unbuilt if "Not built yet" not in ast.get_docstring(node)] == []
    for name in siltstone.admin.__all__:
        function = getattr(siltstone.admin, name)
        if inspect.signature(function).return_annotation == "NoReturn":
            assert inspect.getdoc(function).startswith("Not built yet")


def test_stats_are_documented_alike_in_rust_and_python() -> None:
    (node,) = (
        node
        for node in ast.parse(Path(siltstone.stats.__file__).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Stats"
    )
    pairs = zip(node.body, node.body[1:], strict=False)
    said = {
        field.target.id: text.value.value
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    assert list(said) == [field.name for field in dataclasses.fields(siltstone.Stats)]
    beside = {
        "latencies",
        "compaction_log",
        "compaction_error",
        "gc_error",
        "refresh_error",
        "ended",
    }
    assert all(said.pop(name).endswith("`to_prometheus()`.") for name in beside)
    assert {name: " ".join(text.split()) for name, text in said.items()} == {
        name: meaning for name, _, _, meaning, _ in _native.stat_table()
    }


def test_docstrings_become_markdown(reference) -> None:
    docstring = """Does it, with ``b``.

    More.

        with this:

            go()

    :param b: the first
        and more.
    :raises Invalid, Closed: when wrong.
    """
    assert reference.markdown(docstring) == (
        "Does it, with `b`.\n\nMore.\n\n```python\nwith this:\n\n    go()\n```\n\n"
        "- `b`: the first\n    and more.\n- raises **Invalid, Closed**: when wrong."
    )
    table = "====  ===\n``A``  is one\n``B``  is two\n====  ==="
    assert reference.markdown(table) == "| | |\n| --- | --- |\n| `A` | is one |\n| `B` | is two |"
