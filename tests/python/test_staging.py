"""Staged objects of ingest jobs: listed, and withdrawn by a caller that only knows the id."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
from siltstone import cli, ingest


def part(job: ingest.Job, keys: list[bytes]) -> ingest.Part:
    with job.writer(0) as writer:
        for key in keys:
            writer.add(key, b"value" * 100)
    return writer.finish()


def killed(url: str) -> str:
    """The id of a job whose process was killed after it staged a part."""
    program = (
        "import os, sys\n"
        "from siltstone import ingest\n"
        "job = ingest.Job(sys.argv[1])\n"
        "with job.writer(0) as writer:\n"
        "    writer.add(b'key', b'value')\n"
        "writer.finish()\n"
        "print(job.id, flush=True)\n"
        "os._exit(9)\n"
    )
    command = [sys.executable, "-c", program, url]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def url(tmp_path: Path) -> str:
    siltstone.open(str(tmp_path / "db")).close()
    return str(tmp_path / "db")


def test_staged_jobs_are_listed_and_taken_back(url: str) -> None:
    assert ingest.jobs(url) == []
    dead = killed(url)
    taken = ingest.Job(url)
    with siltstone.open(url) as db:
        db.ingest(taken.commit([part(taken, [b"a", b"b"])])).wait()
        db.flush(memtable=True)
    listed = {job.id: job for job in ingest.jobs(url)}
    assert {job: one.status.state for job, one in listed.items()} == {
        dead: "open",
        taken.id: "adopted",
    }
    one = listed[dead]
    files = [path for path in Path(url, "ingest", dead).rglob("*") if path.is_file()]
    assert (one.objects, one.bytes) == (1, sum(path.stat().st_size for path in files))
    assert one.last_stored is not None
    assert one.last_stored < one.deadline

    assert ingest.withdraw(url, one).state == "aborted"
    assert ingest.withdraw(url, dead).state == "aborted"
    # Objects that are part of the database stay.
    assert ingest.withdraw(url, taken).state == "adopted"
    siltstone.admin.gc(url, min_age=0)
    assert [job.id for job in ingest.jobs(url)] == [taken.id]
    with siltstone.open_reader(url) as reader:
        assert list(reader.keys()) == [b"a", b"b"]


def test_a_job_that_was_taken_back_is_not_asked_for(url: str) -> None:
    job = ingest.Job(url)
    staged = part(job, [b"a"])
    ingest.withdraw(url, job.id)
    with pytest.raises(siltstone.Conflict, match="aborted"):
        job.commit([staged])


def test_one_that_waits_stays(url: str) -> None:
    job = ingest.Job(url)
    request = job.commit([part(job, [b"a"])])
    assert ingest.submit(request, wait=False).state == "pending"
    assert ingest.withdraw(url, job).state == "pending"
    assert ingest.submit(request).state == "adopted"


@pytest.mark.parametrize(
    ("job", "kind"),
    [("01ARZ3NDEKTSV4RRFFQ69G5FAV", siltstone.NotFound), ("no id", siltstone.Invalid)],
)
def test_an_unknown_job_is_told(url: str, job: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ingest.withdraw(url, job)
    assert ingest.jobs(url) == []


def test_the_command(url: str) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli.main, ["--path", url, "ingest", *words])
        assert done.exit_code == code, done.output
        return done.output

    dead = killed(url)
    assert run("--list").split("\t")[:2] == [dead, "open"]
    [told] = json.loads(run("--list", "--json"))
    assert (told["job"], told["state"], told["objects"]) == (dead, "open", 1)
    assert run("--withdraw", dead) == "aborted\n"
    asked = ingest.Job(url)
    ingest.submit(asked.commit([part(asked, [b"a"])]))
    assert "adopted" in run("--withdraw", asked.id, code=1)
    assert "exclude each other" in run("--list", "--withdraw", dead, code=2)
    assert "FILE" in run(code=2)
