"""Private names of PySpark: which ones the package uses, and that it works without them."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

import siltstone
import siltstone.spark as kv
from siltstone.spark import _calls, _driver
from siltstone.spark._errors import error_of
from spark_versions_for_tests import CLASSIC, SOURCES, STREAM_SINKS

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


def test_the_package_uses_no_private_name_of_pyspark() -> None:
    private = re.compile(
        r"(?<!siltstone\.)\b(?:spark|session|context|SparkContext|SparkSession|df|frame)\._[a-z]\w*"
        r"|from pyspark\S* import _|pyspark\._"
    )
    folder = Path(kv.__file__).parent
    modules = [*folder.glob("*.py"), folder.parent.with_name("pyspark_siltstone") / "__init__.py"]
    found = [f"{path.name}: {one}" for path in modules for one in private.findall(path.read_text())]
    assert not found


@SOURCES
def test_the_process_that_makes_writers_is_known() -> None:
    from pyspark_siltstone import PLANS_WRITES  # noqa: PLC0415

    assert importlib.util.find_spec(PLANS_WRITES) is not None


@STREAM_SINKS
def test_the_process_that_commits_streams_is_known() -> None:
    from siltstone.spark._sink import COMMITS_STREAMS  # noqa: PLC0415

    assert importlib.util.find_spec(COMMITS_STREAMS) is not None


@SOURCES
def test_a_source_that_takes_itself_for_a_reader_writes_all_the_same(url, monkeypatch) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415

    import pyspark_siltstone  # noqa: PLC0415

    monkeypatch.setattr(pyspark_siltstone, "PLANS_WRITES", "a module of another version")
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])

    def aborted() -> None:
        source = pyspark_siltstone.DefaultSource({"path": url})
        source.writer(schema, False).abort([])

    # The writer creates the database, and a failed first write removes it.
    aborted()
    with pytest.raises(siltstone.NotFound):
        siltstone.admin.versions(url)
    # The second writer meets a database, which it pins.
    siltstone.open(url).close()
    aborted()
    assert siltstone.admin.versions(url)
    kv.release()


@CLASSIC
def test_the_driver_and_its_planning_processes_have_one_name(spark) -> None:
    def names(batches):
        for batch in batches:
            yield batch.from_pydict({"name": [_driver.driver_name()] * batch.num_rows})

    there = {row["name"] for row in spark.range(2).mapInArrow(names, "name string").collect()}
    assert there == {_driver.driver_name()}


def test_without_java_a_process_is_its_own_driver(monkeypatch) -> None:
    monkeypatch.setattr(_driver, "_process", lambda _: None)
    assert _driver.driver_name().endswith(f"/{os.getpid()}/0")


@CLASSIC
def test_outside_of_a_stream_a_call_has_no_run(spark) -> None:
    assert _calls.run_of(spark.range(1)) is None


def test_an_error_of_a_task_without_credentials_names_the_remedy() -> None:
    text = "  siltstone.exceptions.Denied: put: no credentials were found, neither (bucket: b)"
    error = error_of(RuntimeError(text))
    assert isinstance(error, siltstone.Denied)
    assert "give store_options as 'module:function'" in str(error)
    assert str(error_of(RuntimeError(text + str(error)))).count("module:function") == 1
