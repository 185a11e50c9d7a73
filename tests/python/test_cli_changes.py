"""The change feed on the command line."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

import siltstone
from siltstone.cli import main


@pytest.fixture
def run(url: str):
    """Runs a command on a database with one row. Returns exit status, output and errors."""
    with siltstone.open(url) as db:
        db[b"first"] = b"1"

    def call(*arguments: str):
        done = CliRunner().invoke(main, ["--path", url, *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    return call


def keys(out: str) -> list[str]:
    rows = [line.split("\t") for line in out.splitlines()]
    return [row[3] for row in rows if len(row) == 5]


def test_acknowledging_without_a_consumer_is_refused_before_any_output(run) -> None:
    status, out, err = run("changes", "--since", "oldest", "--acknowledge")
    assert (status, out) == (2, "")
    assert "--acknowledge needs --consumer" in err


def test_a_snapshot_begins_with_the_id_of_its_checkpoint(run, url: str) -> None:
    begin = ("changes", "--since", "snapshot", "--consumer")
    first, last = run(*begin, "index")[1].splitlines()
    (made,) = siltstone.admin.list_checkpoints(url)
    assert first == f"checkpoint\t{made.id}"
    assert last.startswith("token\tc1-")
    # The consumer is forgotten, and its checkpoint is still there, as the help says.
    assert run("forget-consumer", "index") == (0, "", "")
    assert [one.id for one in siltstone.admin.list_checkpoints(url)] == [made.id]
    assert made.expires - made.created == timedelta(days=1)
    assert run("delete-checkpoint", "--id", str(made.id)) == (0, "", "")
    told = [json.loads(line) for line in run(*begin, "index", "--json")[1].splitlines()]
    (made,) = siltstone.admin.list_checkpoints(url)
    assert told[0] == {"checkpoint": str(made.id)}
    assert run("changes", "--consumer", "index")[1].startswith("token\t")


def test_a_feed_begins_at_a_checkpoint(run) -> None:
    made = run("create-checkpoint", "--name", "nightly")[1].strip()
    assert run("put", "second", "2")[0] == 0
    for start in (made, made.replace("-", ""), "nightly"):
        status, out, err = run("changes", "--since", start)
        assert (status, keys(out), err) == (0, ["second"], "")
    status, out, err = run("changes", "--since", made, "--consumer", "index", "--acknowledge")
    assert (status, keys(out), err) == (0, ["second"], "")
    assert keys(run("changes", "--consumer", "index")[1]) == []
    token = run("changes")[1].split("\t")[1].strip()
    assert keys(run("changes", "--since", token)[1]) == []


def test_rows_are_read_at_a_checkpoint(run) -> None:
    made = run("create-checkpoint", "--name", "nightly")[1].strip()
    assert run("put", "second", "2")[0] == 0
    for name in (made, "nightly"):
        assert run("scan", "--checkpoint", name) == (0, "first\t1\n", "")
        assert run("get", "first", "--checkpoint", name) == (0, "1\n", "")
        assert run("get", "second", "--checkpoint", name)[0] == 3
    assert run("scan")[1] == "first\t1\nsecond\t2\n"
    status, out, err = run("scan", "--checkpoint", "weekly")
    assert (status, out) == (1, "")
    assert "weekly" in err


@pytest.mark.parametrize("start", ["unknown", "01740ee5-6459-44af-9a45-85deb6e468e3"])
def test_an_unknown_start_names_the_list_of_checkpoints(run, start: str) -> None:
    status, out, err = run("changes", "--since", start)
    assert (status, out) == (1, "")
    assert "checkpoint" in err
    assert run("list-checkpoints")[0] == 0


def test_a_checkpoint_of_no_parent_is_refused(run) -> None:
    status, _, err = run("clone", "--parent-at", "other", "nightly", "--checkpoint", "nightly")
    assert status == 2
    assert "--checkpoint belongs to --parent" in err
