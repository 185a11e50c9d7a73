"""Which objects can be pickled to other processes, and which cannot."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import providers_for_tests
import siltstone
from pace_for_tests import PATIENCE

CANARY = "cAnArY0123456789secret"


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


def test_state_of_this_process_does_not_travel(db) -> None:
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


def test_a_relative_path_is_the_same_place_elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with siltstone.open("what?is@this") as db:
        db.put(b"a", b"1").wait()
        reader = siltstone.open_reader("what?is@this")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with reader, pickle.loads(pickle.dumps(reader)) as again:
            assert again[b"a"] == b"1"


def test_a_provider_travels_by_name(url: str) -> None:
    siltstone.open(url).close()
    for provider in (providers_for_tests.nothing, "providers_for_tests:nothing"):
        with siltstone.open_reader(url, store_options=provider) as reader:
            data = pickle.dumps(reader)
            assert b"providers_for_tests:nothing" in data
            with pickle.loads(data) as again:
                assert pickle.dumps(again) == data
    with siltstone.open(url, store_options=providers_for_tests.nothing) as db:
        db.put(b"a", b"1").wait()
        assert siltstone.admin.manifest(url, store_options=dict)


def nested():
    """A function that cannot be imported by name."""

    def provider() -> dict[str, str]:
        return {}

    return provider


class Callable:
    """A callable object."""

    def __call__(self) -> dict[str, str]:
        return {}


@pytest.mark.parametrize("provider", [nested(), functools.partial(dict), Callable()])
def test_a_provider_without_a_name_serves_here_and_does_not_travel(url: str, provider) -> None:
    siltstone.open(url).close()
    with siltstone.open_reader(url, store_options=provider) as reader:
        assert reader.get(b"a") is None
        with pytest.raises(siltstone.Invalid, match="cannot be imported"):
            pickle.dumps(reader)


@pytest.mark.parametrize("provider", [None, "providers_for_tests:nothing"])
def test_a_reader_without_credentials_in_another_process_says_how_to_give_them(
    url: str, provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    siltstone.open(url).close()
    with siltstone.open_reader(url, store_options=provider or {}) as reader:
        data = pickle.dumps(reader)

    def denied(*_given: object) -> None:
        raise siltstone.Denied("no credentials were found, neither", context={"bucket": "b"})

    monkeypatch.setattr(siltstone._native, "open_reader", denied)
    with pytest.raises(siltstone.Denied, match="no credentials were found") as caught:
        pickle.loads(data)
    assert caught.value.context == {"bucket": "b"}
    assert ("given as a dict stay in the process" in str(caught.value)) == (provider is None)


@pytest.mark.parametrize(
    "name", ["no_such_module:f", "os:no_such", "os", ":f", "os:", "os:sep", "os.path:join.x"]
)
def test_a_provider_that_is_not_there_is_named(url: str, name: str) -> None:
    with pytest.raises(siltstone.Invalid, match="module:function") as caught:
        siltstone.open(url, store_options=name)
    named = name not in ("os", ":f", "os:")
    assert caught.value.context == ({"provider": name} if named else {})
    if name == "no_such_module:f":
        assert "No module named 'no_such_module'" in str(caught.value)
    if name == "os:no_such":
        assert "no attribute 'no_such'" in str(caught.value)
    again = (siltstone._open.reopen_reader, (url, {}, name))
    with pytest.raises(siltstone.Invalid, match="module:function"):
        again[0](*again[1])


def test_a_provider_gives_a_dict(url: str) -> None:
    with pytest.raises(TypeError, match="a function that gives one, not int"):
        siltstone.open(url, store_options=providers_for_tests.wrong)


@pytest.fixture
def bucket():
    """The endpoint of an object store on this machine, in its own process."""
    pytest.importorskip("moto.server")
    boto = pytest.importorskip("boto3")
    program = Path(__file__).parents[1] / "support" / "serve_moto.py"
    server = subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        client = boto.client(
            "s3",
            endpoint_url=endpoint,
            region_name="r",
            aws_access_key_id="a",
            aws_secret_access_key="s",
        )
        client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "r"})
        client.close()
        yield endpoint
    finally:
        server.stdin.close()
        server.wait(PATIENCE)
        server.stdout.close()


def test_no_pickle_carries_a_secret(bucket: str, python, monkeypatch) -> None:
    """A reader is sent to a process with other credentials, by provider and by environment."""
    monkeypatch.setenv("TEST_ENDPOINT", bucket)
    monkeypatch.setenv("TEST_SECRET", CANARY)
    options = providers_for_tests.from_environment()
    place = "s3://bucket/db"
    with siltstone.open(place, store_options=options) as db:
        db.put(b"a", b"1").wait()
    load = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).get(b'a'))"
    aws = {
        "AWS_ENDPOINT": bucket,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "r",
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SECRET_ACCESS_KEY": "other",
    }
    here = str(Path(__file__).parent)
    provider = {
        "TEST_SECRET": "other",
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
    }
    for given, environment in (
        (options, aws),
        (providers_for_tests.from_environment, provider),
    ):
        with siltstone.open_reader(place, store_options=given) as reader:
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                data = pickle.dumps(reader, protocol)
                for part in (CANARY, "AKIAPUBLICPART", bucket, "secret_access_key"):
                    assert part.encode() not in data
        status, out, err = python(load, data.hex(), **environment)
        assert (status, out) == (0, "b'1'\n"), err


def first_value(reader: siltstone.Reader) -> bytes | None:
    return reader.get(b"a")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_readers_go_to_pools_of_processes(url: str, method: str) -> None:
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        with (
            siltstone.open_reader(url, options={"manifest_poll_interval": 0.5}) as reader,
            ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool,
        ):
            assert list(pool.map(first_value, [reader] * 4)) == [b"1"] * 4


def test_a_closure_over_a_reader_travels_as_spark_sends_it(url: str, python) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    with siltstone.open(url) as db:
        db.put(b"a", b"1").wait()
        with siltstone.open_reader(url) as reader:
            data = cloudpickle.dumps(lambda key: reader.get(key))
    load = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))(b'a'))"
    status, out, err = python(load, data.hex())
    assert (status, out) == (0, "b'1'\n"), err


def test_a_closure_over_a_database_says_why_it_does_not_travel(db) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    with pytest.raises((TypeError, pickle.PicklingError), match="one writer"):
        cloudpickle.dumps(lambda key: db.get(key))
