"""Spark with the S3 protocol: the workers take their credentials from their environment, and no
secret shows in a plan, an event log or an error.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from spark_versions_for_tests import CONNECT, STREAM_SINKS, frame_of_table, version

pytest_plugins = ["spark_for_tests"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CONNECT, reason="what is logged is the server's, which stands apart"),
]

CANARY = "canary0of0a0secret"
URL = "s3://bucket/db"
PROVIDER = "providers_for_tests:from_environment"
ROWS = {b"key/%04d" % n: b"value %d" % n for n in range(600)}
SERVE_S3 = Path(__file__).parents[1] / "support" / "serve_moto.py"


@pytest.fixture(scope="module")
def endpoint():
    """A server with a bucket on this machine, which handles one request at a time."""
    pytest.importorskip("moto.server")
    server = subprocess.Popen(
        [sys.executable, str(SERVE_S3)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    made = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
    made.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4")
    with urllib.request.urlopen(made):
        pass
    yield endpoint
    server.stdin.close()
    server.wait(timeout=60)
    server.stdout.close()


@pytest.fixture(scope="module")
def session_environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "AKIAPUBLICPART",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": CANARY,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        # For the provider given by name.
        "TEST_ENDPOINT": endpoint,
        "TEST_SECRET": CANARY,
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def session_settings(log: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": log.as_uri(),
    }


def test_all_of_it_through_a_bucket(spark, log: Path, tmp_path: Path, capfd) -> None:
    siltstone.open(URL).close()
    frame = frame_of_table(spark, pa.table({"key": list(ROWS), "value": list(ROWS.values())}))
    frame = frame.repartition(2)
    for provider in (None, PROVIDER):
        done = kv.bulk_load(frame, URL, key="key", txn=("s3", 1), store_options=provider)
        assert done.repeated == (provider is not None)
        read = kv.scan(spark, URL, partitions=2, store_options=provider)
        assert {bytes(row.key): bytes(row.value) for row in read.collect()} == ROWS
        read.explain("extended")
        found = kv.lookup(frame.select("key"), URL, key="key", store_options=provider)
        assert found.where("value IS NULL").count() == 0
        found.explain("extended")
        column = kv.get(URL, store_options=provider)
        assert frame.select(column("key").alias("v")).where("v IS NULL").count() == 0
        assert kv.doctor(spark, URL, store_options=provider).problems == ()
    assert kv.delete(frame.where("key < binary('key/0100')"), URL, key="key").rows == 100
    kv.upsert(URL, key="key", txn_app="by hand")(frame.limit(0), 0)
    assert kv.changes(spark, URL).count() == len(ROWS) + 100
    if version() >= (4, 0):
        read_by_name(spark)
    for text in failures(spark):
        assert CANARY not in text
    shown = "".join(capfd.readouterr())
    assert "MapInArrow" in shown
    assert CANARY not in shown
    kv.release()
    logged = [path.read_text() for path in log.rglob("*") if path.is_file()]
    assert any("SparkListenerTaskEnd" in text for text in logged)
    assert not any(CANARY in text for text in logged)


def read_by_name(spark) -> None:
    """Reads through the data source, whose planning runs in its own processes."""
    for options in ({}, {"storeOptions": PROVIDER}):
        source = spark.read.format("siltstone").options(**options).load(URL)
        assert source.count() == len(ROWS) - 100
        source.explain("extended")
        one = spark.sql("SELECT binary('key/0000') AS key, binary('back') AS value")
        one.write.format("siltstone").options(**options).mode("append").save(URL)
        kv.delete(one, URL, key="key")


def failures(spark):
    """Texts of errors: in this process, in the planning process, and in tasks."""
    siltstone.admin.create_checkpoint(URL, name="short")
    lost = kv.scan(spark, URL, checkpoint="short")
    siltstone.admin.delete_checkpoint(URL, "short")
    # A collector keeps the manifest before the newest: after two more commits the frame's own
    # manifest is deleted.
    passing = siltstone.admin.create_checkpoint(URL)
    siltstone.admin.delete_checkpoint(URL, passing)
    siltstone.admin.gc(URL, min_age=0)
    writing = spark.sql("SELECT binary('k') AS key, binary('v') AS value")
    calls = [
        (siltstone.NotFound, lambda: kv.scan(spark, URL + "none")),
        (siltstone.NotFound, lambda: kv.delete(writing, URL + "none", key="key")),
        (siltstone.Error, lambda: kv.scan(spark, "s3://nobucket/db")),
        (Exception, lambda: lost.collect()),
    ]
    if version() >= (4, 0):
        source = spark.read.format("siltstone")
        calls += [
            (Exception, lambda: source.load(URL + "none").collect()),
            (Exception, lambda: writing.write.format("siltstone").mode("append").save("s3://no/b")),
        ]
    for kind, call in calls:
        with pytest.raises(kind) as caught:
            call()
        yield f"{caught.value!r} {caught.value} {getattr(caught.value, 'context', '')}"


@STREAM_SINKS
def test_a_stream_into_a_bucket(spark, tmp_path: Path) -> None:
    siltstone.open(URL).close()
    source = tmp_path / "source"
    table = pa.table({"key": [b"stream/%d" % n for n in range(10)], "value": [b"x"] * 10})
    frame_of_table(spark, table).write.parquet(str(source))
    for _ in range(2):
        stream = spark.readStream.schema("key binary, value binary").parquet(str(source))
        writing = stream.writeStream.format("siltstone").option("path", URL)
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finished(writing.trigger(availableNow=True).start())
    assert kv.scan(spark, URL, prefix=b"stream/").count() == 10
    kv.release()
