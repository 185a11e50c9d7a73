"""Errors of the command line: each remedy is a command or an option of it, and works."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import siltstone
from siltstone.cli import _remedies, main

PYTHONS = (
    r"open it with|open with|take_over|open_reader|merge_operator|store_options|siltstone\.\w"
    r"|release_clone|delete_checkpoint|without soft|with force|allow_ingest|\w\(|\b[a-z]+=[\"T]"
)
"""Phrases for things that only a program can do, or that a program spells differently."""


@pytest.fixture
def fails():
    """Runs a command that fails. Returns its error, which names nothing of Python."""

    def call(path: object, *arguments: str) -> str:
        done = CliRunner().invoke(main, ["--path", str(path), *arguments])
        assert done.exit_code == 1, (done.exit_code, done.exception)
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
        assert not re.search(PYTHONS, done.stderr), done.stderr
        return done.stderr

    return call


def works(path: object, *arguments: str) -> str:
    done = CliRunner().invoke(main, ["--path", str(path), *arguments])
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done.stdout


def remedy(text: str, path: object, **words: str) -> list[str]:
    """The command that an error names in backticks. `words` replace its placeholders."""
    (named,) = re.findall(r"`siltstone --path URL ([^`]+)`", text)
    return [str(path), *(words.get(word, word) for word in shlex.split(named))]


@pytest.mark.parametrize("command", ["get a", "put a 1", "delete a", "scan", "stats", "manifest",
                                     "verify", "gc", "compact", "run-compactor"])  # fmt: skip
def test_a_missing_database_names_create(fails, tmp_path: Path, command: str) -> None:
    path = tmp_path / "absent"
    works(*remedy(fails(path, *command.split()), path))
    works(path, "put", "a", "1")


def test_an_open_writer_names_take_over(fails, url: str) -> None:
    with siltstone.open(url, merge_operator="append") as db:
        db.merge(b"k", b"1").wait()
        assert "--take-over" in fails(url, "put", "a", "2")
    works(url, "put", "a", "2", "--take-over")


def test_operands_name_the_option_of_their_operator(fails, url: str) -> None:
    folds = siltstone.MergeOperator("cli-fold", lambda _key, _base, operands: operands[0])
    with siltstone.open(url, merge_operator=folds) as db:
        db.merge(b"k", b"1")
    assert "with --merge-operator" in fails(url, "get", "k")


def test_a_softly_destroyed_database_names_destroy(fails, url: str) -> None:
    siltstone.open(url).close()
    siltstone.destroy(url, soft=True)
    named = remedy(fails(url, "put", "--create", "a", "1"), url)
    assert fails(url, "get", "a") == fails(url, "scan")
    works(*named)
    works(url, "put", "--create", "a", "1")


def test_a_pinned_database_names_soft_and_the_release(fails, url: str, tmp_path: Path) -> None:
    siltstone.open(url).close()
    siltstone.clone(tmp_path / "clone", parent=url)
    refused = fails(url, "destroy", "--yes")
    assert "destroy it with --soft" in refused
    (pin,) = siltstone.admin.list_checkpoints(url)
    named = remedy(fails(url, "delete-checkpoint", "--id", str(pin.id)), url, CLONE=str(pin.id))
    assert named == remedy(refused, url, CLONE=str(pin.id))
    assert "release the pin with --force" in fails(*named)
    works(*named, "--force")
    works(url, "destroy", "--yes")


def test_verify_names_the_release_of_a_lost_clone(url: str, tmp_path: Path) -> None:
    siltstone.open(url).close()
    siltstone.clone(tmp_path / "clone", parent=url)
    shutil.rmtree(tmp_path / "clone")
    done = CliRunner().invoke(main, ["--path", url, "verify"])
    assert done.exit_code == 0
    assert not re.search(PYTHONS, done.stderr)
    works(*remedy(done.stderr, url))
    assert siltstone.admin.verify(url).lost_clones == ()


def test_release_of_another_checkpoint_names_its_deletion(fails, url: str) -> None:
    with siltstone.open(url) as db:
        made = db.checkpoint(name="nightly")
    works(*remedy(fails(url, "release-clone", "nightly"), url, ID=str(made.id)))


def test_files_out_of_order_name_the_options(fails, url: str, tmp_path: Path) -> None:
    siltstone.open(url).close()
    unsorted, equal = tmp_path / "unsorted.csv", tmp_path / "equal.csv"
    unsorted.write_text("key,value\nb,1\na,2\n")
    equal.write_text("key,value\na,1\na,2\n")
    assert "with --sorted" in fails(url, "ingest", "--sorted", str(unsorted))
    works(url, "ingest", str(unsorted))
    assert "give --duplicates last" in fails(url, "ingest", str(equal))
    works(url, "ingest", "--duplicates", "last", str(equal))
    assert "without --allow-ingest-behind" in fails(url, "ingest", "--behind", str(unsorted))
    assert "`siltstone ingest --list`" in fails(url, "ingest", "--withdraw", "unknown")


def test_a_table_takes_only_its_rows(url: str, tmp_path: Path) -> None:
    columns = pa.schema([("country", pa.string()), ("day", pa.int32()), ("rows", pa.int64())])
    siltstone.table.create(url, columns, key=["country", "day"]).close()
    with siltstone.open(url) as db:
        db.table.put([{"country": "DE", "day": 1, "rows": 5}])
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("key,value\na,1\n")
    key, value = works(url, "scan").removesuffix("\n").split("\t")
    commands = (
        ["put", "a", "1"],
        ["put", "--escaped", key, "1"],
        ["put", "--escaped", key, ""],
        ["ingest", str(pairs)],
    )
    for command in commands:
        done = CliRunner().invoke(main, ["--path", url, *command])
        assert done.exit_code == 1
        assert "the database is a table" in done.stderr
        assert "in Python, or with Spark" in done.stderr
    works(url, "delete", "--escaped", key)
    works(url, "put", "--escaped", key, value)
    with siltstone.open_reader(url) as reader:
        (row,) = pa.table(reader.table.scan()).to_pylist()
        assert row == {"country": "DE", "day": 1, "rows": 5}


def test_a_new_consumer_names_its_start(fails, url: str) -> None:
    siltstone.open(url).close()
    assert "--since snapshot, oldest or latest" in fails(url, "changes", "--consumer", "index")
    assert "--consumer" in fails(url, "changes", "--since", "snapshot")
    works(url, "changes", "--since", "snapshot", "--consumer", "index")


def test_a_promotion_of_no_mirror_names_no_creation(fails, url: str) -> None:
    siltstone.open(url).close()
    assert "create`" not in fails(url, "promote")


@pytest.mark.parametrize(("text", "shown"), [
    ("free space, call compact(), or wait", "run `siltstone --path URL compact`"),
    ("split it, or write the rows with load(), which", "with `siltstone --path URL ingest`"),
    ("probe with a smaller largest_object", "a smaller --largest-object"),
    ("opened without a merge operator; bring one to open", "name it with --merge-operator"),
    ("give `store_options` a function that returns the keys, for instance from boto3", "set AWS_"),
])  # fmt: skip
def test_rare_errors_are_in_the_words_of_the_program(text: str, shown: str) -> None:
    assert shown in _remedies._in_our_words(text)
    assert not re.search(PYTHONS, _remedies._in_our_words(text))


def test_every_remedy_replaces_a_text_of_the_library() -> None:
    """A text that changes in the library must change here too, or users are sent to Python."""
    root = Path(__file__).resolve().parents[2]
    rust = "\n".join(path.read_text() for path in (root / "crates").glob("*/src/**/*.rs"))
    texts = re.sub(r"\\\n\s*", "", rust).replace('\\"', '"')
    python = "\n".join(path.read_text() for path in (root / "python/siltstone").glob("*.py"))
    texts += python.replace("{self.pin!r}", "'pin'")
    for text, _ in _remedies._REMEDIES:
        assert re.search(text, texts), text
