"""Keys and values as text on the command line: a printed text is read back as the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import siltstone
from siltstone.cli import main

DATA = [
    b"\xff",
    b"\\xff",
    b"\\",
    b"a\\",
    b"a\tb\nc\r\n",
    b"\x00\x1b[2J\x7f",
    "é€𝄞".encode(),
    "\x85\x9b\u2028\ue000".encode(),
    b"\xed\xa0\x80\xc3",
    b" '\"$`",
    bytes(range(1, 256)),
]


@pytest.fixture
def run(url: str):
    """Runs a command that succeeds. Returns its output."""
    siltstone.open(url).close()

    def call(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["--path", url, *arguments])
        assert done.exit_code == 0, (done.stderr, done.exception)
        return done.stdout

    return call


@pytest.mark.parametrize("form", [["--escaped"], ["--hex"], ["--base64"]])
def test_printed_keys_and_values_are_read_back(run, url: str, form: list[str]) -> None:
    with siltstone.open(url) as db:
        for data in DATA:
            db[data] = data[::-1]
    lines = run("scan", *form).removesuffix("\n").split("\n")
    assert len(lines) == len(DATA) == len(set(lines))
    for line, data in zip(lines, sorted(DATA), strict=True):
        key, value = line.split("\t")
        assert run("get", *form, "--", key) == value + "\n"
        assert run("scan", *form, "--limit", "1", f"--start={key}") == line + "\n"
        run("delete", *form, "--", key)
        run("put", *form, "--", key, value)
        with siltstone.open_reader(url) as reader:
            assert reader.get(data) == data[::-1]


def test_get_tells_a_byte_from_its_escape(run, url: str) -> None:
    with siltstone.open(url) as db:
        db[b"byte"], db[b"text"] = b"\xff", b"\\xff"
    printed = [run("get", "--escaped", key) for key in ("byte", "text")]
    assert printed == ["\\xff\n", "\\\\xff\n"]


@pytest.mark.parametrize("text", ["a\\dir", "\\", "\\x0g", "\\u00e9", '{"a": "\\""}', "\\\n"])
def test_another_escape_is_refused(url: str, text: str) -> None:
    siltstone.open(url).close()
    for command in (["put", "key", text], ["get", text], ["scan", "--prefix", text]):
        done = CliRunner().invoke(main, ["--path", url, *command, "--escaped"])
        assert (done.exit_code, done.stdout) == (2, "")
        assert "without --escaped, text is taken as it is" in done.stderr
    done = CliRunner().invoke(main, ["--path", url, "put", "key", text])
    assert done.exit_code == 0
    with siltstone.open_reader(url) as reader:
        assert reader.get(b"key") == text.encode()


def test_text_is_taken_and_printed_as_it_is(run, url: str) -> None:
    run("put", "a\\tb", "c\\n\udcff\nd")
    with siltstone.open_reader(url) as reader:
        assert dict(reader.scan()) == {b"a\\tb": b"c\\n\xff\nd"}
    assert run("get", "a\\tb") == "c\\n\\xff\nd\n"
    assert run("get", "--json", "a\\tb") == '{"key": "a\\\\tb", "value_hex": "635c6eff0a64"}\n'


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_every_encoding_prints_every_text(run, url: str, environment: dict[str, str]) -> None:
    text = "é€\udcff\\"
    with siltstone.open(url) as db:
        db[text.encode("utf-8", "surrogateescape")] = "ß€".encode()

    def shown(*arguments: str) -> str:
        program = [sys.executable, "-m", "siltstone.cli", "--path", url, *arguments]
        environ = {**os.environ, **environment}
        done = subprocess.run(program, env=environ, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode("latin-1")

    key, value = shown("scan").removesuffix("\n").split("\t")
    assert key.endswith("\\xe2\\x82\\xac\\xff\\\\")
    assert value == shown("get", "--escaped", key).removesuffix("\n")
    assert run("get", "--escaped", "--", key) == "ß€\n"
    assert value in ("ß\\xe2\\x82\\xac", "\\xc3\\x9f\\xe2\\x82\\xac")
    assert shown("changes", "--since", "oldest").split("\t")[3:5] == [key, f"{value}\ntoken"]
