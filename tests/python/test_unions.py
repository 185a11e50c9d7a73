"""Clones of several databases, and of databases in other places: from the package, by asyncio, from
the command line."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
import siltstone.aio
from pace_for_tests import PATIENCE
from siltstone.cli import main

admin = siltstone.admin
Parent = siltstone.Parent
ROWS = {f"{n:03}".encode(): b"old" for n in range(100)}
LOW = {key: value for key, value in ROWS.items() if key < b"050"}
HIGH = {key: value for key, value in ROWS.items() if key >= b"050"}
SERVE_S3 = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"


@pytest.fixture(params=["folder", "memory"])
def places(request: pytest.FixtureRequest, tmp_path: Path, memory_url: str):
    """The places of the databases of one test, by name: folders under separate roots."""
    if request.param == "folder":
        return lambda name: str(tmp_path / f"root of {name}" / "a, b")
    return lambda name: f"{memory_url}-{name}"


def fill(url: str, rows: dict[bytes, bytes], **how) -> None:
    """Writes half of the rows to tables, and half only to the log."""
    keys = sorted(rows)
    with siltstone.open(url, **how) as db:
        db.put_many(keys[::2], [rows[key] for key in keys[::2]])
        db.flush(memtable=True)
        db.put_many(keys[1::2], [rows[key] for key in keys[1::2]])


NO_LEASE = {"reader_lease": False}
"""A reader's lease would keep the objects of parents that its state names."""


def rows(url: str, **how) -> dict[bytes, bytes]:
    with siltstone.open_reader(url, options=NO_LEASE, **how) as reader:
        return dict(reader.items())


def test_two_databases_become_one(places) -> None:
    fill(places("low"), LOW)
    fill(places("high"), HIGH)
    siltstone.clone(places("both"), parent=[places("high"), places("low")])
    with siltstone.open(places("both")) as db:
        assert dict(db.items()) == ROWS
        db.delete_range(b"040", b"060")
        db[b"new"] = b"1"
    left = {key: value for key, value in ROWS.items() if not b"040" <= key < b"060"}
    for _ in range(2):
        assert rows(places("both")) == {**left, b"new": b"1"}
        admin.compact(places("both"))
        admin.gc(places("both"), min_age=0)
    assert admin.manifest(places("both"))["ancestors"] == []
    assert admin.list_checkpoints(places("low")) == admin.list_checkpoints(places("high")) == []
    assert (rows(places("low")), rows(places("high"))) == (LOW, HIGH)
    assert admin.verify(places("both")).problem_count == 0


def test_split_and_joined_it_is_what_it_was(places) -> None:
    fill(places("whole"), ROWS)
    cuts = [None, b"020", b"050", b"051", None]
    parts = []
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        parts.append(places(f"part {number}"))
        siltstone.clone(parts[-1], parent=places("whole"), start=start, end=end)
    with siltstone.open(parts[1]) as db:
        db[b"030"] = b"new"
        db.compact()
    siltstone.clone(places("joined"), parent=parts)
    assert rows(places("joined")) == {**ROWS, b"030": b"new"}
    # A part of a union, cut like any other part.
    siltstone.clone(places("middle"), parent=parts, start=b"010", end=b"030")
    middle = {key: value for key, value in ROWS.items() if b"010" <= key < b"030"}
    assert rows(places("middle")) == middle


def test_a_part_of_each_of_two_overlapping_databases(places) -> None:
    fill(places("a"), ROWS)
    fill(places("b"), dict.fromkeys(ROWS, b"new"))
    both = [places("a"), places("b")]
    with pytest.raises(siltstone.Invalid, match="overlap") as caught:
        siltstone.clone(places("c"), parent=both)
    told = caught.value.context
    urls = {url if "://" in url else Path(url).as_uri() for url in both}
    assert {told["one"], told["other"]} == urls
    assert (told["has keys to"], told["has keys from"]) == ("099", "000")
    parents = [Parent(places("a"), end=b"050"), Parent(url=places("b"), start=b"050")]
    siltstone.clone(places("c"), parent=parents)
    assert rows(places("c")) == {**LOW, **dict.fromkeys(HIGH, b"new")}
    siltstone.clone(places("c"), parent=parents[::-1])
    with pytest.raises(siltstone.Conflict):
        siltstone.clone(places("c"), parent=parents[:1])
    siltstone.clone(places("d"), parent=parents[1])
    assert set(rows(places("d"))) == set(HIGH)


def test_checkpoints_of_several(places) -> None:
    fill(places("low"), LOW)
    fill(places("high"), HIGH)
    for name in ("low", "high"):
        kept = admin.create_checkpoint(places(name), name="nightly")
        fill(places(name), dict.fromkeys(rows(places(name)), b"new"))
    low, high = places("low"), places("high")
    siltstone.clone(places("one"), parent=[low, high], checkpoint="nightly")
    assert rows(places("one")) == ROWS
    siltstone.clone(places("two"), parent=[low, (high, kept)])
    assert rows(places("two")) == {**dict.fromkeys(LOW, b"new"), **HIGH}
    parents = [Parent(low, "nightly"), Parent(high)]
    siltstone.clone(places("three"), parent=parents)
    assert rows(places("three")) == {**LOW, **dict.fromkeys(HIGH, b"new")}
    with pytest.raises(siltstone.Expired):
        siltstone.clone(places("four"), parent=[low, (high, "never")])


def test_refusals_have_words(places) -> None:
    fill(places("low"), LOW)
    with pytest.raises(siltstone.Invalid, match="needs a parent"):
        siltstone.clone(places("x"), parent=[])
    with pytest.raises(siltstone.NotFound):
        siltstone.clone(places("x"), parent=[places("low"), places("nowhere")])
    with pytest.raises(TypeError, match="Parent"):
        siltstone.clone(places("x"), parent=[(places("low"), None, b"a")])
    with pytest.raises(siltstone.Invalid, match="start below its end"):
        siltstone.clone(places("x"), parent=[Parent(places("low"), start=b"9")], end=b"3")
    fill(places("summed"), {b"x": b"1"}, merge_operator="append")
    fill(places("largest"), {b"y": b"1"}, merge_operator="max")
    with pytest.raises(siltstone.Invalid, match="merge_operator"):
        siltstone.clone(places("x"), parent=[places("low"), places("summed"), places("largest")])
    siltstone.clone(places("x"), parent=[places("low"), places("summed")])
    with siltstone.open(places("x")) as db:
        db.merge(b"x", b"2")
        assert db[b"x"] == b"12"


def test_a_parent_is_plain_values() -> None:
    parent = Parent("a.db", "nightly", start=b"a", end=b"b")
    assert pickle.loads(pickle.dumps(parent)) == parent
    with pytest.raises(AttributeError):
        parent.url = "b.db"  # type: ignore[misc]


def test_awaited(places) -> None:
    fill(places("low"), LOW)
    fill(places("high"), HIGH)

    async def work() -> dict[bytes, bytes]:
        parents = [Parent(places("low")), places("high")]
        await siltstone.aio.clone(places("both"), parent=parents)
        async with siltstone.aio.open(places("both")) as db:
            return {key: value async for key, value in db.scan()}

    assert asyncio.run(work()) == ROWS


def test_from_the_command_line(tmp_path: Path) -> None:
    low, high, both, old = (str(tmp_path / name) for name in ("l@w", "high", "both", "old"))
    fill(low, LOW)
    fill(high, HIGH)
    admin.create_checkpoint(high, name="then")
    fill(high, dict.fromkeys(HIGH, b"new"))

    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, list(words))
        assert done.exit_code == code, done.output
        return done.output

    run("--path", both, "clone", "--parent", low, "--parent", high)
    assert rows(both) == {**LOW, **dict.fromkeys(HIGH, b"new")}
    words = ["--path", old, "clone", "--parent", low, "--parent-at", high, "then", "--json"]
    told = json.loads(run(*words))
    pairs = [(one["parent"], one["checkpoint"]) for one in told["parents"]]
    assert (told["clone"], pairs) == (old, [(low, None), (high, "then")])
    assert rows(old) == ROWS
    run("--path", str(tmp_path / "x"), "clone", code=2)
    assert "--parent" in run("--help") or "clone" in run("--help")


# --- Other places ---------------------------------------------------------------------------------


@pytest.fixture
def s3():
    """Two buckets of a server on this machine, and the options to reach them."""
    pytest.importorskip("moto.server")
    server = subprocess.Popen(
        [sys.executable, str(SERVE_S3)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdin is not None
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    for bucket in ("prod", "dev"):
        made = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
        head = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4"
        made.add_header("Authorization", head)
        with urllib.request.urlopen(made):
            pass
    options = {"endpoint": endpoint, "access_key_id": "x", "secret_access_key": "canary-secret"}
    yield {**options, "region": "us-east-1", "allow_http": "true"}
    server.stdin.close()
    server.wait(timeout=PATIENCE)
    server.stdout.close()


def test_a_parent_in_another_bucket(s3: dict[str, str], python) -> None:
    fill("s3://prod/live", ROWS, store_options=s3)
    far = {"parent": "s3://prod/live", "store_options": s3}
    for options in (s3, {**s3, "clone_parents": "s3://prod/other"}):
        with pytest.raises(siltstone.Unsupported, match="clone_parents") as caught:
            siltstone.clone("s3://dev/try", **{**far, "store_options": options})
        assert "s3://prod/live" in str(caught.value)
        assert "canary" not in repr(caught.value)
    allowed = {**s3, "clone_parents": "s3://other, s3://prod/live"}
    siltstone.clone("s3://dev/try", parent="s3://prod/live", store_options=allowed)
    assert rows("s3://dev/try", store_options=allowed) == ROWS

    for call in (
        lambda how: siltstone.open("s3://dev/try", store_options=how),
        lambda how: siltstone.open_reader("s3://dev/try", store_options=how),
        lambda how: admin.compact("s3://dev/try", store_options=how),
        lambda how: admin.gc("s3://dev/try", store_options=how),
        lambda how: admin.verify("s3://dev/try", store_options=how),
    ):
        with pytest.raises(siltstone.Unsupported, match="clone_parents"):
            call(s3)
    # A pickled reader takes its allowed parents from the same source as its credentials.
    how = {"options": NO_LEASE, "store_options": allowed}
    with siltstone.open_reader("s3://dev/try", **how) as reader:
        pickled = pickle.dumps(reader).hex()
    program = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).get(b'007'))"
    aws = {
        "AWS_ENDPOINT": s3["endpoint"],
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
    }
    status, _, told = python(program, pickled, **aws)
    assert status != 0
    assert "clone_parents" in told
    given = {**aws, "SILTSTONE_CLONE_PARENTS": "s3://prod"}
    assert python(program, pickled, **given)[1].strip() == "b'old'"

    admin.compact("s3://dev/try", store_options=allowed)
    admin.gc("s3://dev/try", min_age=0, store_options=allowed)
    assert admin.list_checkpoints("s3://prod/live", store_options=s3) == []
    assert rows("s3://dev/try", store_options=s3) == ROWS


def test_a_clone_in_a_folder_of_a_parent_in_a_bucket(s3: dict[str, str], tmp_path: Path) -> None:
    fill("s3://prod/live", ROWS, store_options=s3)
    allowed = {**s3, "clone_parents": "s3://prod"}
    trial = tmp_path / "try"
    siltstone.clone(trial, parent="s3://prod/live", store_options=allowed)
    with siltstone.open(trial, store_options=allowed) as db:
        db.delete_range(b"000", b"050")
        assert dict(db.items()) == HIGH
    words = ["--path", str(trial)]
    for name, value in allowed.items():
        words += ["--store-option", f"{name}={value}"]
    done = CliRunner().invoke(main, [*words, "get", "070"])
    assert (done.exit_code, done.output) == (0, "old\n")
    refused = CliRunner().invoke(main, ["--path", str(trial), "get", "070"])
    assert refused.exit_code != 0
    assert "clone_parents" in refused.output + refused.stderr


def test_unused_options_are_told(tmp_path: Path) -> None:
    with pytest.raises(siltstone.Invalid, match="`region`"):
        siltstone.open(
            tmp_path / "db", store_options={"region": "r", "clone_parents": "memory://x"}
        )
    with pytest.raises(siltstone.Invalid, match="clone_parents"):
        siltstone.open(tmp_path / "db", store_options={"clone_parents": "s4://x"})
