"""What travels to other processes, and what does not."""

from __future__ import annotations

import copy
import pickle

import pytest

import siltstone


def test_a_reader_travels_with_url_and_options(url: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        options = siltstone.Options(manifest_poll_interval=0.5)
        with siltstone.open_reader(url, options=options) as reader:
            data = pickle.dumps(reader)
            assert b"manifest_poll_interval" in data
            with pickle.loads(data) as again:
                assert again[b"a"] == b"1"
                assert again is not reader
                assert repr(again) == repr(reader)


def test_a_reader_travels_to_another_interpreter(url: str, python) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        with siltstone.open_reader(url) as reader:
            data = pickle.dumps(reader).hex()
    status, out, err = python(
        "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).get(b'a'))", data
    )
    assert status == 0, err
    assert out == "b'1'\n"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_options_travel(protocol: int) -> None:
    options = siltstone.Options(flush_interval=0.25, compression="zstd")
    again = pickle.loads(pickle.dumps(options, protocol))
    assert again == options
    assert again.compression == "zstd"
    assert copy.deepcopy(options) == options
    assert hash(again) == hash(options)


@pytest.mark.parametrize("name", sorted(set(siltstone.exceptions.__all__)))
def test_errors_travel(name: str) -> None:
    error = getattr(siltstone, name)("text", operation="open", context={"a": "b"})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == "text"
    assert again.operation == "open"
    assert again.context == {"a": "b"}


def test_what_belongs_to_this_process_does_not_travel(db) -> None:
    db[b"a"] = b"1"
    commit = db.put(b"b", b"2")
    for stays in (db, db.snapshot(), db.scan(), commit, db.batch(), db.scan().to_arrow()):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(stays)
    with pytest.raises(TypeError, match="one writer"):
        pickle.dumps(db)
    with pytest.raises(TypeError):
        copy.copy(db)


def test_stats_travel(db) -> None:
    stats = db.stats()
    assert pickle.loads(pickle.dumps(stats)) == stats
