"""The command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import siltstone
from siltstone.cli import main

COMMANDS = ["get", "put", "delete", "scan", "stats", "manifest"]


@pytest.fixture
def run(url: str):
    """Runs a command on a database that exists: exit status, output, errors."""
    siltstone.open(url).close()

    def call(*arguments: str, path: str = url):
        done = CliRunner().invoke(main, ["--path", path, *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    return call


def test_put_get_delete_scan(run) -> None:
    assert run("put", "a", "1") == (0, "", "")
    assert run("put", "b", "two words") == (0, "", "")
    assert run("get", "b") == (0, "two words\n", "")
    assert run("scan") == (0, "a\t1\nb\ttwo words\n", "")
    assert run("scan", "--reverse", "--limit", "1") == (0, "b\ttwo words\n", "")
    assert run("scan", "--prefix", "a") == (0, "a\t1\n", "")
    assert run("scan", "--start", "b") == (0, "b\ttwo words\n", "")
    assert run("delete", "b") == (0, "", "")
    status, out, err = run("get", "b")
    assert (status, out) == (3, "")
    assert err == "Error: the key 'b' is absent\n"


def test_bytes_are_hexadecimal(run) -> None:
    assert run("put", "--hex", "00ff", "fe") == (0, "", "")
    assert run("get", "--hex", "00ff") == (0, "fe\n", "")
    assert run("scan") == (0, "\0\\xff\t\\xfe\n", "")
    status, _, err = run("get", "--hex", "xyz")
    assert status == 2
    assert "hexadecimal" in err


def test_every_command_speaks_json(run, url: str) -> None:
    assert json.loads(run("put", "--json", "a", "1")[1])["key"] == "a"
    assert json.loads(run("get", "--json", "a")[1]) == {"key": "a", "value": "1"}
    assert run("get", "--json", "x")[:2] == (3, '{"key": "x", "value": null}\n')
    assert json.loads(run("scan", "--json")[1]) == {"key": "a", "value": "1"}
    assert json.loads(run("delete", "--json", "a")[1])["seq"] == 2
    assert json.loads(run("stats", "--json")[1])["tables"] >= 1
    state = json.loads(run("manifest", "--json")[1])
    assert state["closed_cleanly"] is True
    assert state["l0"][0]["tables"][0]["first_key"] == b"a".hex()


def test_plain_lines_where_there_is_no_terminal(run) -> None:
    run("put", "a", "1")
    figures = dict(line.split("\t") for line in run("stats")[1].splitlines())
    assert figures["visible_seq"] == "1"
    state = dict(line.split("\t") for line in run("manifest")[1].splitlines())
    assert state["settings.codec"] == "none"
    assert state["l0"] == "1"
    assert (
        dict(line.split("\t") for line in run("manifest", "--id", "1")[1].splitlines())["id"] == "1"
    )


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_every_command_has_help(run, command: list[str]) -> None:
    status, out, _ = run(*command, "--help")
    assert status == 0
    assert "Usage:" in out
    if command:
        assert "--json" in out


@pytest.mark.parametrize(
    "command", [["get", "a"], ["put", "a", "1"], ["scan"], ["stats"], ["manifest"]]
)
def test_errors_are_one_line(run, tmp_path, command: list[str]) -> None:
    status, out, err = run(*command, path=str(tmp_path / "absent"))
    assert status == 1
    assert out == ""
    assert err.startswith("Error: NotFound: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "absent" / "manifest").exists()


@pytest.mark.parametrize("command", [["put", "a", "2"], ["delete", "a"]])
def test_writing_fences_nobody_unless_told_to(run, url: str, command: list[str]) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        status, _, err = run(*command)
        assert status == 1
        assert "Conflict" in err
        assert "--take-over" in err
        db.put(b"a", b"1").wait()
        assert run(*command, "--take-over") == (0, "", "")
        with pytest.raises(siltstone.Fenced):
            db.put(b"a", b"3").wait()
        with pytest.raises(siltstone.Fenced):
            db.close()
        # Leaving the block closes once more, which does nothing.


def test_wrong_calls_exit_with_two(run) -> None:
    assert run("get")[0] == 2
    assert run("unknown")[0] == 2
    assert run("scan", "--limit", "-1")[0] == 2
    assert CliRunner().invoke(main, ["get", "a"]).exit_code == 2
    wrong = CliRunner().invoke(main, ["--path", "x", "--store-option", "region", "stats"])
    assert wrong.exit_code == 2
    assert "NAME=VALUE" in wrong.stderr


def test_the_program_is_installed(python) -> None:
    program = """
import importlib.metadata as m
(entry,) = m.entry_points(group="console_scripts", name="siltstone")
entry.load()(["--version"])
"""
    status, out, err = python(program)
    assert status == 0, err
    assert siltstone.__version__ in out
