"""The stub agrees with the module."""

from __future__ import annotations

import ast
import importlib.resources
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from siltstone import _native

ROOT = Path(__file__).resolve().parents[2]
STUB = ast.parse((importlib.resources.files("siltstone") / "_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def members(name: str) -> dict[str, ast.FunctionDef]:
    """The methods of a class of the stub, including those of its private base classes."""
    node, found = CLASSES[name], {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found.update(members(base.id))
    found.update({item.name: item for item in node.body if isinstance(item, ast.FunctionDef)})
    return found


PUBLIC = sorted(name for name in CLASSES if not name.startswith("_"))


def test_the_module_has_nothing_that_the_stub_lacks() -> None:
    built = {name for name in vars(_native) if not name.startswith("_") and name != "_native"}
    assert built == {name for name in (*CLASSES, *FUNCTIONS) if not name.startswith("_")}


@pytest.mark.parametrize("name", PUBLIC)
def test_classes_have_the_same_members(name: str) -> None:
    built = getattr(_native, name)
    public = {member for member in vars(built) if not member.startswith("_")}
    assert public == {member for member in members(name) if not member.startswith("_")}
    for member in members(name):
        assert hasattr(built, member), member


@pytest.mark.parametrize("name", PUBLIC)
def test_methods_take_the_same_arguments(name: str) -> None:
    for member, node in members(name).items():
        if member.startswith("_") or any(
            isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list
        ):
            continue
        built = inspect.signature(getattr(getattr(_native, name), member)).parameters
        arguments = node.args
        stub = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        stub += [more for more in (arguments.vararg, arguments.kwarg) if more]
        # The class of a class method is not an argument.
        stub = [argument for argument in stub if argument.arg != "cls"]
        assert sorted(built) == sorted(argument.arg for argument in stub), member


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_is_documented(name: str) -> None:
    documented = {
        item.name
        for item in CLASSES[name].body
        if isinstance(item, ast.FunctionDef) and ast.get_docstring(item)
    }
    public = {item.name for item in CLASSES[name].body if isinstance(item, ast.FunctionDef)}
    assert ast.get_docstring(CLASSES[name])
    assert {member for member in public if not member.startswith("_")} <= documented


TYPED = """
from typing import assert_type
import siltstone
from siltstone import aio

async def awaited(db: aio.Database, reader: aio.Reader, snapshot: aio.Snapshot) -> None:
    for each in (db, reader, snapshot):
        assert_type(await each.get(b"k"), bytes | None)
    assert_type(await db.get(b"k", None), bytes | None)
    assert_type(await db.get(b"k", b"d"), bytes)
    assert_type(await db.get(b"k", 7), bytes | int)
    assert_type(await db.get_many([b"k"]), list[bytes | None])

def waited(db: siltstone.Database) -> None:
    assert_type(db.get(b"k"), bytes | None)
    assert_type(db.get(b"k", 7), bytes | int)
    assert_type(db.get_many([b"k"]), list[bytes | None])
    assert_type(db.pop(b"k"), bytes)
    assert_type(db.pop(b"k", None), bytes | None)
    with db.transaction() as tx:
        assert_type(tx.get(b"k"), bytes | None)
        assert_type(siltstone.retry(db, lambda tx: tx.get(b"k", b"")), bytes)
"""


def test_answers_have_the_types_they_say(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "typed.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubtest_agrees(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy.stubtest", "siltstone", "--concise"),
            *("--mypy-config-file", str(ROOT / "pyproject.toml")),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
