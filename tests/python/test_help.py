"""`help()` shows the docstrings and signatures of the stubs for the compiled classes."""

from __future__ import annotations

import ast
import importlib.resources
import inspect

import pytest

import siltstone
from siltstone import _native, aio, keys, lsm

STUB = ast.parse((importlib.resources.files("siltstone") / "_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = [node for node in STUB.body if isinstance(node, ast.FunctionDef)]
# Classes that users meet under some public name.
PUBLIC = sorted(
    name
    for name in CLASSES
    if any(
        getattr(module, shown, None) is getattr(_native, name, object())
        for module in (siltstone, aio, lsm)
        for shown in module.__all__
    )
)


def nodes(name: str) -> dict[str, list[ast.FunctionDef]]:
    """The methods of a class of the stub by name, including those of private base classes."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for base in CLASSES[name].bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found.update(nodes(base.id))
    own: dict[str, list[ast.FunctionDef]] = {}
    for item in CLASSES[name].body:
        if isinstance(item, ast.FunctionDef):
            own.setdefault(item.name, []).append(item)
    return {**found, **own}


def said(overloads: list[ast.FunctionDef]) -> str | None:
    return next((text for text in map(ast.get_docstring, overloads) if text), None)


def members() -> list[tuple[str, str]]:
    return [
        (name, member) for name in PUBLIC for member in nodes(name) if not member.startswith("_")
    ]


def test_texts_that_users_meet_are_compared() -> None:
    assert {"Database", "Reader", "Snapshot", "Scan", "AsyncCommit", "SstWriter"} <= {*PUBLIC}
    assert ("Database", "put") in members()
    assert ("Database", "get") in members()


@pytest.mark.parametrize("name", PUBLIC)
def test_classes_are_documented_as_in_the_stub(name: str) -> None:
    assert inspect.getdoc(getattr(_native, name)) == ast.get_docstring(CLASSES[name])


@pytest.mark.parametrize(("name", "member"), members())
def test_members_are_documented_as_in_the_stub(name: str, member: str) -> None:
    built = getattr(getattr(_native, name), member)
    text = said(nodes(name)[member])
    assert text
    assert inspect.cleandoc(built.__doc__) == text


@pytest.mark.parametrize(("name", "member"), members())
def test_members_show_the_signature_of_the_stub(name: str, member: str) -> None:
    # If overloads differ only in types, the last one is the widest.
    node = nodes(name)[member][0]
    marks = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
    if "property" in marks:
        return
    built = getattr(getattr(_native, name), member)
    assert built.__text_signature__
    shown = inspect.signature(built).parameters
    arguments = node.args
    assert [each for each in shown if each != "self"] == [
        argument.arg
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *([arguments.vararg] if arguments.vararg else []),
            *arguments.kwonlyargs,
            *([arguments.kwarg] if arguments.kwarg else []),
        )
        if argument.arg != "self"
    ]
    first = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [*zip(first, arguments.defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    expected = {arg.arg: ast.literal_eval(default) for arg, default in pairs if default}
    found = {n: p.default for n, p in shown.items() if p.default is not inspect.Parameter.empty}
    assert found == expected
    for argument in arguments.kwonlyargs:
        assert shown[argument.arg].kind is inspect.Parameter.KEYWORD_ONLY


def test_functions_are_documented_as_in_the_stub() -> None:
    compared = 0
    for node in FUNCTIONS:
        if node.name in (*lsm.__all__, *keys.__all__) and (text := ast.get_docstring(node)):
            assert inspect.getdoc(getattr(_native, node.name)) == text
            compared += 1
    assert compared == 4


def test_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    help(siltstone.Database.put)
    shown = capsys.readouterr().out
    assert "if_absent=False" in shown
    assert ":param ttl: time to live; the key expires after it." in shown
