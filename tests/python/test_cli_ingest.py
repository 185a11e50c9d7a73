"""The command `ingest`: files that it refuses, and jobs that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import siltstone
from siltstone import ingest
from siltstone.cli import main

LOAD = ingest.Job.load


@pytest.fixture
def call(url: str):
    """Runs `ingest` on an existing database. Returns exit status, output and errors."""
    siltstone.open(url).close()

    def run(*arguments: str):
        done = CliRunner().invoke(main, ["--path", url, "ingest", *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    return run


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """The name of a file with one row."""
    path = tmp_path / "rows.csv"
    path.write_text("key,value\nk,v\n")
    return str(path)


def load_then(error: BaseException):
    """Returns a load that stages its rows and fails then, as at a late row."""

    def load(job: ingest.Job, *arguments, **named):
        LOAD(job, *arguments, **named)
        raise error

    return load


@pytest.mark.parametrize("error", [siltstone.Invalid("late row"), KeyboardInterrupt()])
def test_a_load_that_fails_aborts_its_job(call, rows: str, url: str, monkeypatch, error) -> None:
    monkeypatch.setattr(ingest.Job, "load", load_then(error))
    status, out, err = call(rows)
    assert (status, out) == (1, "")
    assert ("late row" if isinstance(error, siltstone.Error) else "Aborted!") in err
    assert [job.status.state for job in ingest.jobs(url)] == ["aborted"]


def test_a_commit_that_fails_aborts_its_job(call, rows: str, url: str, monkeypatch) -> None:
    def commit(job: ingest.Job, parts):
        raise siltstone.Unavailable("no store")

    monkeypatch.setattr(ingest.Job, "commit", commit)
    status, _, err = call(rows)
    assert status == 1
    assert "no store" in err
    assert [job.status.state for job in ingest.jobs(url)] == ["aborted"]


def test_a_failed_abort_does_not_hide_the_first_error(call, rows: str, monkeypatch) -> None:
    def abort(job: ingest.Job):
        raise siltstone.Unavailable("no store")

    monkeypatch.setattr(ingest.Job, "load", load_then(siltstone.Invalid("late row")))
    monkeypatch.setattr(ingest.Job, "abort", abort)
    status, _, err = call(rows)
    assert status == 1
    kept, first = err.splitlines()
    assert kept.startswith("The tables of job ")
    assert "no store" in kept
    assert first == "Error: Invalid: late row"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_a_header_in_another_encoding_is_an_error_of_one_line(
    call, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value,größe\nk,v,1\nk2,v,1\n", encoding=encoding)
    told = "the names of the columns are not UTF-8: save the file as UTF-8"
    assert call(str(path)) == (1, "", f"Error: Invalid: {path}: {told}\n")


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.struct({"a": pa.binary()})])
def test_a_column_of_nested_text_is_an_error_of_one_line(call, tmp_path: Path, kind) -> None:
    path = tmp_path / "rows.arrow"
    table = pa.table({"key": ["k"], "value": pa.array([None], kind)})
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table)
    told = f"the column value holds {kind}; keys and values are binary or text"
    assert call(str(path)) == (1, "", f"Error: Invalid: {path}: {told}\n")


@pytest.mark.parametrize("kind", [
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(1),
    pa.dictionary(pa.int8(), pa.string()),
])  # fmt: skip
def test_columns_of_bytes_and_text_are_read(call, tmp_path: Path, kind) -> None:
    path = tmp_path / "rows.arrow"
    value = pa.array([b"v"] if kind == pa.binary(1) else ["v"])
    table = pa.table({"key": ["k"], "value": value.cast(kind)})
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table)
    assert json.loads(call(str(path), "--json")[1])["rows"] == 1


def test_a_csv_file_with_two_columns_of_one_name_is_refused(call, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value,value\nk,v,w\n")
    status, _, err = call(str(path))
    assert status == 1
    assert "2 columns have the name value; rename one" in err
