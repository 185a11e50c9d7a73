"""Workers that get the package as an archive: `spark.archives`, as docs/spark-workers.md says."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

import siltstone
import siltstone.spark as kv
from spark_versions_for_tests import CONNECT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CONNECT, reason="the archive is a setting of the cluster's own session"),
]

PACKAGES = ("siltstone", "pyspark_siltstone")


def archived(folder: Path) -> Path:
    """An archive of the installed package, compiled module included."""
    place = folder / "packages.zip"
    root = Path(siltstone.__file__).parent.parent
    with zipfile.ZipFile(place, "w") as archive:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(root))
    return place


@pytest.fixture
def spark(tmp_path: Path):
    """A session on a cluster whose workers have no other path to the package than the archive."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - starts nothing before it is needed

    import spark_cluster_for_tests as clusters  # noqa: PLC0415
    from spark_for_tests import own_jvm  # noqa: PLC0415

    if not clusters.has_both_addresses():
        pytest.skip("this system has one address of the loopback network")
    cluster = clusters.Cluster(tmp_path)
    try:
        with own_jvm(), pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYSPARK_PYTHON", sys.executable)
            patch.setenv("SPARK_LOCAL_IP", clusters.HOSTS[0])
            patch.delenv("PYTHONPATH", raising=False)
            builder = SparkSession.builder.master(cluster.url)
            for name, value in clusters.SETTINGS.items():
                builder = builder.config(name, value)
            builder = builder.config("spark.archives", f"{archived(tmp_path)}#packages")
            session = builder.config("spark.executorEnv.PYTHONPATH", "packages").getOrCreate()
            yield session
            session.stop()
    finally:
        cluster.end()


def where_it_is(batches):
    """The folder of the package in a worker, and that of its compiled module."""
    import pyarrow as pa  # noqa: PLC0415 - in the worker

    import siltstone as package  # noqa: PLC0415
    from siltstone import _native  # noqa: PLC0415

    for _ in batches:
        places = [package.__file__, _native.__file__]
        yield pa.RecordBatch.from_pydict({"place": [os.path.realpath(one) for one in places]})


def test_workers_use_the_package_of_the_archive(spark, url: str, tmp_path: Path) -> None:
    # Sent by value: the module of a test is in no archive.
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        found = spark.range(8).mapInArrow(where_it_is, "place string").distinct().collect()
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert len(found) >= 2
    for row in found:
        place = Path(row.place)
        assert place.parent.parent.name == "packages"
        # In the folder of the executor, and not where the driver has the package.
        assert place.is_relative_to(tmp_path)
    rows = spark.range(1000).selectExpr("string(id) AS key", "string(id * 2) AS value")
    assert kv.bulk_load(rows, url, key="key").rows == 1000
    assert kv.scan(spark, url).where("int(string(value)) >= 1000").count() == 500
    assert not kv.doctor(spark, url).problems
