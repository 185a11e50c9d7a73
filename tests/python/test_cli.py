"""The command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import feather, parquet

import siltstone
from pace_for_tests import PATIENCE
from siltstone.cli import _common, main

COMMANDS = ["create", "get", "put", "delete", "scan", "stats", "manifest", "verify", "gc", "run-gc"]


@pytest.fixture
def run(url: str):
    """Runs a command on an existing database. Returns exit status, output and errors."""
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


@pytest.mark.parametrize("command", ["scan", "get 61", "put 61 62", "delete 61"])
def test_keys_are_read_in_one_form(run, command: str) -> None:
    for forms in (["--hex", "--base64"], ["--base64", "--hex"], ["--escaped", "--hex"]):
        status, out, err = run(*command.split(), *forms)
        assert (status, out) == (2, "")
        assert "--hex, --base64 and --escaped exclude each other" in err


def test_delete_takes_a_range(run) -> None:
    for key in ("a", "b", "c", "d"):
        assert run("put", key, "1") == (0, "", "")
    assert run("delete", "b", "--end", "d") == (0, "", "")
    assert run("scan") == (0, "a\t1\nd\t1\n", "")
    status, _, err = run("delete", "b", "--end", "a")
    assert status == 1
    assert "start below its end" in err


def test_operands_are_folded(run, url: str) -> None:
    with siltstone.open(url, merge_operator="append") as db:
        db.put(b"k", b"1")
        db.merge(b"k", b"2")
    assert run("get", "k") == (0, "12\n", "")
    status, _, err = run("--merge-operator", "max", "get", "k")
    assert status == 1
    assert "append" in err


def test_bytes_are_hexadecimal(run) -> None:
    assert run("put", "--hex", "00ff", "fe") == (0, "", "")
    assert run("get", "--hex", "00ff") == (0, "fe\n", "")
    assert run("scan") == (0, "\\x00\\xff\t\\xfe\n", "")
    status, _, err = run("get", "--hex", "xyz")
    assert status == 2
    assert "hexadecimal" in err


def test_bytes_are_base64(run) -> None:
    assert run("put", "--base64", "AP8=", "/g==") == (0, "", "")
    assert run("get", "--base64", "AP8=") == (0, "/g==\n", "")
    assert run("get", "--hex", "00ff") == (0, "fe\n", "")
    assert run("scan", "--base64") == (0, "AP8=\t/g==\n", "")
    assert json.loads(run("scan", "--base64", "--json")[1]) == {"key": "AP8=", "value": "/g=="}
    for wrong in ("AP8", "A P8="):
        status, out, err = run("get", "--base64", wrong)
        assert (status, out) == (2, "")
        assert "base64" in err


def test_a_row_stays_in_its_line(run, url: str) -> None:
    with siltstone.open(url) as db:
        db[b"a\tb"] = b"1\n2\r\x1b[2J\\ \xc3\xa9\xff"
    out = run("scan")[1]
    assert out == "a\\tb\t1\\n2\\r\\x1b[2J\\\\ é\\xff\n"
    told = json.loads(run("scan", "--json")[1])
    assert told == {"key": "a\tb", "value_hex": "310a320d1b5b324a5c20c3a9ff"}


def test_json_tells_bytes_from_their_escapes(run, url: str) -> None:
    with siltstone.open(url) as db:
        db[b"\xff"] = b"bytes"
        db[b"\\xff"] = b"text"
    told = [json.loads(line) for line in run("scan", "--json")[1].splitlines()]
    assert told == [{"key": "\\xff", "value": "text"}, {"key_hex": "ff", "value": "bytes"}]
    lines = run("changes", "--since", "oldest", "--json")[1].splitlines()
    assert [json.loads(line).get("key_hex") for line in lines] == ["ff", None, None]


def test_json_names_a_key_that_is_not_text_by_its_digits(run) -> None:
    key = "\udcff\x01"
    put = json.loads(run("put", key, "value", "--json", "--create")[1])
    assert put == {"key_hex": "ff01", "seq": 1}
    assert json.loads(run("get", key, "--json")[1]) == {"key_hex": "ff01", "value": "value"}
    assert json.loads(run("get", "--hex", "ff01", "--json")[1])["key"] == "ff01"
    assert json.loads(run("delete", key, "--json")[1]) == {"key_hex": "ff01", "seq": 2}


def installed(url: str, *arguments: str, **more):
    """The program in its own process."""
    command = [sys.executable, "-m", "siltstone.cli", "--path", url, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_a_reader_that_stops_reading_is_no_error(url: str) -> None:
    with siltstone.open(url) as db:
        db.put_many([b"%08d" % n for n in range(50_000)], [b"v" * 50] * 50_000)
    with installed(url, "scan") as program:
        assert program.stdout.readline().startswith(b"00000000\t")
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(PATIENCE) == 141


SHORT = ["get", "key"], ["scan"], ["stats"], ["manifest"], ["verify"], ["gc"], ["compact"]


@pytest.mark.parametrize("command", [["--help"], ["get", "--help"], *SHORT])
def test_a_closed_output_is_no_error(url: str, command: list[str]) -> None:
    """Closed before the start, as by ``>&-``, and by a reader that reads nothing."""
    with siltstone.open(url) as db:
        db[b"key"] = b"value"
    program = [sys.executable, "-m", "siltstone.cli", "--path", url, *command]
    closed = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *program]
    done = subprocess.run(closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_command_without_output_needs_no_streams(url: str) -> None:
    """A file of the database would get the descriptor of a closed stream."""
    program = [sys.executable, "-m", "siltstone.cli", "--path", url]
    closed = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *program]
    for command in (["create"], ["put", "key", "value"], ["delete", "other"]):
        assert subprocess.run([*closed, *command], check=False).returncode == 0
    assert subprocess.run([*closed, "get", "absent"], check=False).returncode == 3
    with siltstone.open_reader(url) as reader:
        assert reader.get(b"key") == b"value"


@pytest.mark.parametrize("command", [
    ["create-checkpoint", "--name", "\udcff"],
    ["create-checkpoint", "--metadata", "\udcff=1"],
    ["changes", "--consumer", "\udcff"],
    ["stats", "--option", "gc.min_age=\udcff"],
    ["ingest-status", "\udcff"],
])  # fmt: skip
def test_a_name_that_is_not_text_is_a_wrong_call(run, command: list[str]) -> None:
    status, out, err = run(*command)
    assert (status, out) == (2, "")
    assert "is not valid UTF-8" in err


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_help_is_printed_in_every_encoding(url: str, encoding: str) -> None:
    for command in ([], ["ingest"], ["changes"]):
        program = [sys.executable, "-m", "siltstone.cli", *command, "--help"]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(program, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("colourless", [True, False])
def test_tables_on_a_terminal(url: str, colourless: bool) -> None:
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    if colourless:
        environment["NO_COLOR"] = "1"
    command = [sys.executable, "-m", "siltstone.cli", "--path", url, "stats"]
    shown = b""
    with subprocess.Popen(command, stdout=theirs, env=environment) as program:
        os.close(theirs)
        # After the other end is closed and drained, Linux answers EIO and others an empty read.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        assert program.wait(PATIENCE) == 0
    text = shown.decode()
    assert "table_rows" in text
    assert "caches" in text
    assert "│" in text
    # SGR sequences: bold and italic may stay without colours, 30 to 49 are colours.
    colours = [code for code in re.findall(r"\x1b\[([\d;]*)m", text) if re.search(r"[34]\d", code)]
    assert not (colourless and colours)


def test_every_command_speaks_json(run, url: str) -> None:
    assert json.loads(run("put", "--json", "a", "1")[1])["key"] == "a"
    assert json.loads(run("get", "--json", "a")[1]) == {"key": "a", "value": "1"}
    assert run("get", "--json", "x")[:2] == (3, '{"key": "x", "value": null}\n')
    assert json.loads(run("scan", "--json")[1]) == {"key": "a", "value": "1"}
    assert json.loads(run("delete", "--json", "a")[1])["seq"] == 2
    figures = json.loads(run("stats", "--json")[1])
    assert figures["tables"] >= 1
    assert set(figures) == {name for name, *_ in siltstone._native.stat_table()}
    state = json.loads(run("manifest", "--json")[1])
    assert state["closed_cleanly"] is True
    assert state["l0"][0]["tables"][0]["first_key"] == b"a".hex()


def test_json_has_times_in_iso_form(run, url: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"k", b"v").wait()
        list(db.changes(since="oldest", consumer="index"))
    for command, name in (("consumers", "expires"), ("changes --since oldest", "time")):
        (told, *_) = map(json.loads, run(*command.split(), "--json")[1].splitlines())
        assert "T" in told[name]
        assert datetime.fromisoformat(told[name]).tzinfo is not None


def test_two_columns_of_one_name_are_refused_by_ingest(run, url: str, tmp_path: Path) -> None:
    siltstone.open(url).close()
    rows = pa.Table.from_arrays([pa.array([b"k"])] * 3, ["key", "value", "value"])
    for path in (tmp_path / "rows.parquet", tmp_path / "rows.arrow"):
        write = parquet.write_table if path.suffix == ".parquet" else feather.write_feather
        write(rows, path)
        code, output, errors = run("ingest", str(path))
        assert (code, output) == (1, "")
        assert "2 columns have the name value; rename one" in errors


def test_other_columns_of_a_file_may_hold_anything(run, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = ["key,note,value", *(f"{n:06},1,v" for n in range(150_000)), "last,hello,v"]
    path.write_text("\n".join(lines))
    code, output, errors = run("ingest", str(path), "--json")
    assert (code, errors) == (0, "")
    assert json.loads(output)["rows"] == 150_001
    code, _, errors = run("ingest", str(path), "--value", "body")
    assert code == 1
    assert "the column body is missing; the columns are: key, note, value" in errors


def test_names_in_tables_are_not_markup(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _common._print_table("of [/x]", [("[red]", "[/y]"), ("group [/z]", None)])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("of [/x]", "[red]", "[/y]", "group [/z]"))


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
    assert "  siltstone --path " in out
    if command:
        assert "--json" in out


def test_the_list_of_commands_is_whole() -> None:
    assert set(main.commands) >= set(COMMANDS)
    for name, command in main.commands.items():
        assert any(option.name == "as_json" for option in command.params), name
        assert "siltstone --path" in (command.epilog or ""), name


@pytest.mark.parametrize(
    "command", [["get", "a"], ["put", "a", "1"], ["scan"], ["stats"], ["manifest"], ["verify"]]
)
def test_errors_are_one_line(run, tmp_path, command: list[str]) -> None:
    status, out, err = run(*command, path=str(tmp_path / "absent"))
    assert status == 1
    assert out == ""
    assert err.startswith("Error: NotFound: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "absent" / "manifest").exists()


@pytest.mark.parametrize("command", [["put", "a", "2"], ["delete", "a"]])
def test_writing_fences_no_writer_unless_told_to(run, url: str, command: list[str]) -> None:
    db = siltstone.open(url)
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


def test_stats_open_no_writer(run, url: str) -> None:
    with siltstone.open(url, options={"l0_sst_size_bytes": 1 << 20}) as db:
        db.put(b"a", b"1").wait()
        figures = json.loads(run("stats", "--json")[1])
        assert figures["epoch"] == 0
        assert (figures["memtable_entries"], figures["visible_seq"]) == (1, 1)
        db.put(b"b", b"2").wait()
    figures = json.loads(run("stats", "--json")[1])
    assert (figures["table_rows"], figures["flushed_seq"]) == (2, 2)
    assert figures["table_bytes"] == figures["l0_bytes"] > 0


def test_stats_count_what_waits_by_the_options_given(run, url: str) -> None:
    for number in range(4):
        with siltstone.open(url, options={"embedded_compactor": False}) as db:
            db.put(b"key", b"%0100d" % number)
    assert json.loads(run("stats", "--json")[1])["pending_compaction_bytes"] == 0
    eager = json.loads(run("stats", "--json", "--option", "l0_compaction_threshold_ssts=2")[1])
    assert eager["pending_compaction_bytes"] == eager["l0_bytes"] > 0
    assert run("stats", "--option", "no_such=1")[0] == 1
    assert run("stats", "--option", "gc.min_age=1h", "--option", 'gc={"interval": 9}')[0] == 0
    status, _, text = run("stats", "--option", "gc.min_age=soon")
    assert (status, "gc.min_age" in text, "31536000 seconds" in text) == (1, True, True)
    status, _, text = run("stats", "--option", "gc_interval=9")
    assert (status, "it is gc.interval now" in text) == (1, True)


def test_wrong_calls_exit_with_two(run) -> None:
    assert run("get")[0] == 2
    assert run("unknown")[0] == 2
    assert run("scan", "--limit", "-1")[0] == 2
    assert CliRunner().invoke(main, ["get", "a"]).exit_code == 2
    wrong = CliRunner().invoke(main, ["--path", "x", "--store-option", "region", "stats"])
    assert wrong.exit_code == 2
    assert "NAME=VALUE" in wrong.stderr


def test_where_the_path_stands_is_said(url: str) -> None:
    for wrong in (["get", "a"], ["get", "--path", url, "a"], ["put", "a", "b", "--path", url]):
        done = CliRunner().invoke(main, wrong)
        assert done.exit_code == 2
        assert "Give it before the command: siltstone --path URL" in done.stderr


def test_the_program_is_installed(python) -> None:
    program = """
import importlib.metadata as m
(entry,) = m.entry_points(group="console_scripts", name="siltstone")
entry.load()(["--version"])
"""
    status, out, err = python(program)
    assert status == 0, err
    assert siltstone.__version__ in out


@pytest.mark.parametrize("module", ["siltstone", "siltstone.cli"])
def test_the_package_runs_as_a_module(url: str, module: str) -> None:
    program = [sys.executable, "-m", module, "--path", url]
    assert subprocess.run([*program, "put", "--create", "a", "1"], check=False).returncode == 0
    done = subprocess.run([*program, "get", "a"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


def test_gc_tells_what_it_deletes(run, url: str) -> None:
    with siltstone.open(url, options={"embedded_gc": False, "l0_sst_size_bytes": 1024}) as db:
        for n in range(50):
            db[b"key%02d" % n] = b"v" * 100
        db.compact()
    status, out, err = run("gc", "--dry-run", "--min-age", "0s")
    assert (status, err) == (0, "")
    assert re.search(r"compacted/\w+\.sst\t\d+ bytes\t\d+ s\tunreferenced\n", out)
    assert "tables stay: the newest version has it\t1 (" in out
    told = json.loads(run("gc", "--dry-run", "--min-age", "0", "--json")[1])
    assert told["dry_run"]
    assert len(told["objects"]) == told["total"]["deleted"] > 2
    assert "tables stay: within the grace period\t" in run("gc", "--min-age", "1day 2h 3min")[1]
    done = json.loads(run("gc", "--min-age", "0", "--json")[1])
    assert done["total"]["deleted"] == told["total"]["deleted"]
    assert done["objects"] == []
    assert run("gc", "--min-age", "0")[1].startswith("manifests deleted\t0 (0 bytes)\n")
    for wrong in ("soon", "5 parsecs", "-1", "", "1..2s"):
        assert run("gc", "--min-age", wrong)[0] == 2, wrong


def test_run_gc_serves_many_and_ends_with_the_last(run, url: str, tmp_path) -> None:
    absent = [str(tmp_path / name) for name in ("no", "none")]
    runner = CliRunner()
    done = runner.invoke(main, ["run-gc", "--json", *absent])
    assert done.exit_code == 1
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["url"] for line in told} == set(absent)
    assert {line["event"] for line in told} == {"end"}
    assert all("no database" in line["text"] for line in told)
    assert runner.invoke(main, ["run-gc"]).exit_code == 2
    assert runner.invoke(main, ["stats"]).exit_code == 2
    interrupted = [sys.executable, "-m", "siltstone.cli", "run-gc", "--interval", "1", url]
    with subprocess.Popen(interrupted, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout.readline().startswith(f"{url}\tround\tdeleted ".encode())
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=PATIENCE) == (b"", b"")
    assert child.returncode == 0


def shown_examples(name: str) -> list[list[str]]:
    """The examples in the help of a command ("" for the program), without the program's name."""
    command = main.commands[name] if name else main
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    shown = [line.split(" | ")[0] for line in lines if line.startswith("siltstone ")]
    return [shlex.split(line)[1:] for line in shown]


def here(arguments: list[str], folder: Path) -> list[str]:
    """The same example with local databases: `folder` replaces the bucket."""
    return [re.sub(r"^s3://bucket/", f"{folder}/", word) for word in arguments]


def test_the_first_examples_begin_a_database(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, *rest = [here(example, Path("example.db").parent) for example in shown_examples("")]
    assert first[-1] == "create"
    for arguments in [first, *rest]:
        arguments[1] = "example.db"  # the database that the first example made
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code, done.stderr) == (0, ""), arguments


ENDLESS = ["run-gc", "run-compactor"]


def beside(name: str, database: Path, arguments: list[str]) -> list[str]:
    """Makes the objects that the examples of some commands need beside a database. Returns the
    words of the example, with its placeholder replaced by a real token or table."""
    if name == "ingest":
        rows = pa.table({"id": ["a"], "body": ["b"], "key": ["c"], "value": ["d"]})
        parquet.write_table(rows, "rows.parquet")
        for year in ("2025", "2026"):
            feather.write_feather(rows, f"{year}.arrow")
    if name == "forget-consumer":
        siltstone.changes.begin(database, consumer=arguments[-1], since="latest")
    if name == "ingest-status":
        job = siltstone.ingest.Job(database)
        job.load(0, pa.table({"key": [b"a"], "value": [b"b"]}))
        return [*arguments[:-1], job.id]
    if name == "release-clone":
        siltstone.clone("try.db", parent=database)
        shutil.rmtree("try.db")
        (pin,) = siltstone.admin.list_checkpoints(database)
        return [*arguments[:-1], str(pin.id)] if "--force" in arguments else arguments
    if "--give-up-table" in arguments:
        (lost,) = (database / "compacted").glob("*.sst")
        lost.write_bytes(lost.read_bytes()[:100])
        return [*arguments[:-1], f"compacted/{lost.name}", "--yes"]
    if name != "changes":
        return arguments
    token = siltstone.changes.latest(database)
    return [token if word == "c1-…" else word for word in arguments]


@pytest.mark.parametrize("name", sorted({*main.commands} - {*ENDLESS}))
def test_examples_of_the_help_run(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = shown_examples(name)
    assert examples
    for number, arguments in enumerate(here(example, tmp_path) for example in examples):
        database = Path(arguments[1])
        if name != "create" and "--create" not in arguments:
            database = Path(f"{number}.db")
            with siltstone.open(database) as db:
                db.put_many([b"colour", b"\x00\xff", b"layer/1"], [b"grey"] * 3)
                for named in {"--id", "--checkpoint"} & set(arguments):
                    db.checkpoint(name=arguments[arguments.index(named) + 1])
        if "--parent" in arguments:
            # The clone needs an unused place. The database becomes its parent instead.
            database.rename(arguments[arguments.index("--parent") + 1])
        if "--parent-at" in arguments:
            other, named = arguments[arguments.index("--parent-at") + 1 :][:2]
            with siltstone.open(other) as db:
                db[b"zinc"] = b"grey"
                db.checkpoint(name=named)
        words = beside(name, database, arguments)
        if name == "import":
            database.rename(arguments[3])
        if name == "promote":
            siltstone.admin.export(database, "mirror.db")
            database = Path("mirror.db")
        done = CliRunner().invoke(main, ["--path", str(database), *words[2:]])
        assert (done.exit_code, done.stderr) == (0, ""), arguments


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ENDLESS)
def test_a_stopped_command_ends_with_zero(name: str, how: int, tmp_path: Path) -> None:
    """Runs the examples of the help. The first line of output shows that the command is at work."""
    for number, example in enumerate(shown_examples(name)):
        if "--worker" in example:
            continue  # prints nothing until there is work for it
        urls = [f"{tmp_path}/{number}{place}" for place in ("one", "two", "db")]
        small = {"l0_sst_size_bytes": 4096, "embedded_compactor": False, "embedded_gc": False}
        small |= {"l0_manifest_commit_interval": 0}
        for url in urls:
            for _ in range(10):
                with siltstone.open(url, options=small) as db:
                    db[b"key"] = b"value"
        there = [re.sub(r"^(s3://bucket/|example\.)", f"{tmp_path}/{number}", e) for e in example]
        command = [sys.executable, "-m", "siltstone.cli", *there]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout.readline()
            child.send_signal(how)
            _, err = child.communicate(timeout=PATIENCE)
        assert (child.returncode, err) == (0, b"")


@pytest.mark.parametrize("name", ENDLESS)
def test_where_no_database_is_both_exit_with_one(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--path", str(tmp_path / "none"), name])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert str(tmp_path / "none") in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ENDLESS)
def test_a_database_that_vanishes_ends_both_with_one(name: str, tmp_path: Path) -> None:
    """The first line of output shows that the command is at work; then its folder is removed."""
    url = str(tmp_path / "db")
    small = {"l0_sst_size_bytes": 4096, "embedded_compactor": False, "embedded_gc": False}
    small |= {"l0_manifest_commit_interval": 0}
    for _ in range(10):
        with siltstone.open(url, options=small) as db:
            db[b"key"] = b"value"
    often = {
        "run-gc": ["--interval", "0.1", "--min-age", "0"],
        "run-compactor": ["--option", "compactors.poll_interval=0.02"],
    }
    command = [sys.executable, "-m", "siltstone.cli", "--path", url, name, *often[name]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline()
        while Path(url).exists():  # the command may write during the removal
            shutil.rmtree(url, ignore_errors=True)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 1, err
    # A background task of the process may log the same error.
    last = [line for line in err.splitlines() if not line.startswith("event=")][-1]
    assert last.startswith("Error: NotFound: "), err
    assert "removed" in last or "gone" in last, err


def test_create_makes_one_and_refuses_another(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    done = CliRunner().invoke(main, ["--path", path, "create", "--option", "compression=zstd"])
    assert (done.exit_code, done.output) == (0, "")
    state = siltstone.admin.manifest(path)
    assert state["closed_cleanly"]
    assert state["settings"]["codec"] == "zstd"
    plain = ["--path", str(tmp_path / "plain"), "create", "--option", "compression=none"]
    assert CliRunner().invoke(main, plain).exit_code == 0
    assert siltstone.admin.manifest(tmp_path / "plain")["settings"]["codec"] == "none"
    done = CliRunner().invoke(main, ["--path", path, "create", "--json"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: Conflict: there is a database at ")
    assert done.stderr.count("\n") == 1
    assert siltstone.admin.manifest(path)["id"] == state["id"], "the refusal wrote nothing"
    done = CliRunner().invoke(main, ["--path", str(tmp_path / "other"), "create", "--json"])
    made = siltstone.admin.manifest(tmp_path / "other")["database"]
    assert json.loads(done.stdout) == {"url": str(tmp_path / "other"), "database": made}


def remedies(text: str, url: str) -> list[list[str]]:
    """The commands that an error names, with the place of the database."""
    named = [shlex.split(one) for one in re.findall(r"`(siltstone [^`]+)`", text)]
    return [[url if word == "URL" else word for word in one[1:]] for one in named]


def test_create_names_the_remedy_for_what_is_at_the_place(run, url: str, tmp_path: Path) -> None:
    """Each named command is run, and then the place can be written to."""
    soft, mirror = str(tmp_path / "soft"), str(tmp_path / "mirror")
    unfinished = tmp_path / "unfinished"
    siltstone.open(soft).close()
    siltstone.destroy(soft, soft=True)
    siltstone.admin.export(url, mirror)
    siltstone.admin.export(url, unfinished)
    for later in sorted((unfinished / "manifest").iterdir())[1:]:
        later.unlink()
    for place, words in ((url, ["there is a database"]), (soft, ["destroyed softly", "destroy"]),
                         (mirror, ["a mirror", "promote"]),
                         (str(unfinished), ["interrupted", "destroy"])):  # fmt: skip
        status, out, err = run("create", path=place)
        assert (status, out) == (1, "")
        assert all(word in err for word in words), err
        (remedy,) = remedies(err, place)
        remedy += ["key", "value"] if remedy[-1] == "put" else []
        assert CliRunner().invoke(main, remedy).exit_code == 0, remedy
        assert run("put", "--create", "key", "value", path=place) == (0, "", "")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["create", "--option", "gc.min_age=1h"], "gc.min_age is not recorded"),
        (["create", "--option", "compression=lz4", "--option", "compression=zstd"], "given twice"),
        (["--store-option", "region=a", "--store-option", "region=b", "stats"], "given twice"),
        (["stats", "--prometheus", "--json"], "give one of them"),
        (["put", "a", "b", "--ttl", "soon"], "7days 30min"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, given, text) -> None:
    done = CliRunner().invoke(main, ["--path", str(tmp_path / "new"), *given])
    assert done.exit_code == 2
    assert text in done.stderr
    assert not (tmp_path / "new").exists()


def test_durations_are_the_same_everywhere(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    siltstone.open(path).close()
    for given in ("1h 30min", "90 minutes", "5400", "1.5h"):
        done = CliRunner().invoke(main, ["--path", path, "put", "a", "b", "--ttl", given])
        assert (done.exit_code, done.stderr) == (0, ""), given
        with siltstone.open(path) as db:
            db.put(b"python", b"b", ttl=given).wait()
            left = [db.get_entry(key).expires - datetime.now(UTC) for key in (b"a", b"python")]
            assert all(timedelta(minutes=85) < one <= timedelta(minutes=90) for one in left)


def test_create_takes_over_none_that_another_made_meanwhile(tmp_path: Path, monkeypatch) -> None:
    """The check finds no database; then another process makes it, and closes it or writes on."""
    path = str(tmp_path / "db")
    with siltstone.open(path) as db:
        db[b"a"] = b"1"
    found = siltstone.NotFound("there is no database here; check the path")
    monkeypatch.setattr(siltstone.admin, "manifest", Mock(side_effect=found))
    done = CliRunner().invoke(main, ["--path", path, "create"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: Conflict: there is a database at ")
    with siltstone.open(path) as db:
        done = CliRunner().invoke(main, ["--path", path, "create"])
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: Conflict: there is a database at ")
        db.put(b"a", b"2").wait()


def test_put_makes_one_when_told_to(tmp_path: Path) -> None:
    put = ["--path", str(tmp_path / "new"), "put", "colour", "grey"]
    refused = CliRunner().invoke(main, put)
    assert refused.exit_code == 1
    assert "`siltstone --path URL create`" in refused.stderr
    for _ in range(2):
        assert CliRunner().invoke(main, [*put, "--create"]).exit_code == 0
    assert CliRunner().invoke(main, [*put[:2], "get", "colour"]).stdout == "grey\n"


@pytest.mark.parametrize("command", ["compact", "gc", "verify"])
def test_long_work_says_how_far_it_is(run, url: str, command: str, monkeypatch) -> None:
    options = {"embedded_compactor": False, "embedded_gc": False, "l0_sst_size_bytes": 1 << 20}
    for _ in range(3):
        with siltstone.open(url, options=options) as db:
            db.put_many([b"%08d" % n for n in range(20_000)], [b"v" * 100] * 20_000)
    monkeypatch.setattr(_common, "_LINE_INTERVAL_SECONDS", 0.0)
    status, out, err = run(command)
    assert status == 0
    assert out
    # Quick work may end before the first progress report.
    unit = r"\d+ of \d+ objects" if command == "gc" else r"[\d.]+ of [\d.]+ MB"
    assert all(re.fullmatch(f"{command}: {unit}", line) for line in err.splitlines())


def test_lines_and_bars_say_the_same(monkeypatch, capsys) -> None:
    monkeypatch.setattr(_common, "_LINE_INTERVAL_SECONDS", 0.0)
    with _common._progress("verify", "bytes") as on_progress:
        on_progress(1_500_000, 3_000_000)
    with _common._progress("gc", "objects") as on_progress:
        on_progress(7, 9)
    assert capsys.readouterr().err == "verify: 1.5 of 3.0 MB\ngc: 7 of 9 objects\n"
    monkeypatch.setattr(_common, "_LINE_INTERVAL_SECONDS", 10.0)
    with _common._progress("gc", "objects") as on_progress:
        on_progress(8, 9)
    assert capsys.readouterr().err == "", "not oftener than that"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with _common._progress("gc", "objects") as on_progress:
        on_progress(8, 9)
    assert "8/9" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_output_that_cannot_be_written_is_one_line(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"key"] = b"value"
    command = [sys.executable, "-m", "siltstone.cli", "--path", url, "get", "key"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode != 0
    told = done.stderr.decode()
    assert told.startswith("Error: input or output failed: [Errno 28]"), told
    assert "Traceback" not in told
