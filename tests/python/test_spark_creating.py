"""Writers create the database if there is none, and resolve names of columns as Spark does."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone import table
from spark_versions_for_tests import SOURCES, STREAM_SINKS, frame_of_table

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow


def pairs(spark, rows: int = 10):
    return spark.range(rows).selectExpr("concat('k/', id) AS key", "string(id) AS value")


def wide(spark):
    return spark.range(10).selectExpr("id", "'x' AS note", "id * 2 AS n")


def count(url: str) -> int:
    with siltstone.open_reader(url) as reader:
        return sum(1 for _ in reader)


def key_of(url: str) -> list[str] | None:
    """The key of the table; None for a database of bytes."""
    with siltstone.open_reader(url) as reader:
        return None if reader._schema() is None else reader.table.key


@pytest.mark.parametrize("key", ["key", "KEY", ["key"]])
def test_a_load_creates_the_database(spark, url, key) -> None:
    for _ in range(2):
        assert kv.bulk_load(pairs(spark), url, key=key).rows == 10
    assert count(url) == 10
    assert key_of(url) == (None if isinstance(key, str) else ["key"])


def test_a_load_by_one_column_that_is_no_pair_creates_a_table(spark, url) -> None:
    for _ in range(2):
        kv.bulk_load(wide(spark), url, key="id")
    assert key_of(url) == ["id"]
    assert count(url) == 10
    more = pairs(spark).selectExpr("key", "value", "'x' AS other")
    kv.bulk_load(more, url + "-3", key="key")
    assert key_of(url + "-3") == ["key"]
    kv.bulk_load(more, url + "-2", key="key", value="value")
    assert key_of(url + "-2") is None
    kv.bulk_load(pairs(spark), url + "-1", key="key", as_bytes=True)
    assert key_of(url + "-1") is None


@pytest.mark.parametrize("way", ["bulk_load", "upsert"])
def test_the_order_of_duplicates_is_part_of_a_new_table(spark, url, way) -> None:
    def load(rows: str, place: str = url, key: str | list[str] = ["k"]) -> None:  # noqa: B006
        frame = spark.sql(f"SELECT * FROM VALUES {rows} AS (k, value, updated_at, op)")
        named = {"key": key, "duplicates": ("max", "UPDATED_AT"), "op": "op"}
        if way == "upsert":
            kv.upsert(place, txn_app="app", **named)(frame, 0)
        else:
            kv.bulk_load(frame, place, **named)

    load("('a', 'old', 1, 'c'), ('a', 'new', 2, 'c'), ('b', 'x', 3, 'c'), ('b', 'x', 4, 'd')")
    assert [tuple(one) for one in kv.scan(spark, url).collect()] == [("a", "new", 2)]
    # A table that lacks the column takes the rows without it.
    fields = [pa.field("k", pa.string(), nullable=False), ("value", pa.string())]
    table.create(url + "-2", pa.schema(fields), key=["k"]).close()
    load("('a', 'old', 1, 'c'), ('a', 'new', 2, 'c')", url + "-2")
    assert [tuple(one) for one in kv.scan(spark, url + "-2").collect()] == [("a", "new")]
    # A key, a value and an order are still a database of bytes.
    load("('k', 'old', 1, 'c'), ('k', 'new', 2, 'c')", url + "-3", "k")
    assert key_of(url + "-3") is None


def test_nothing_is_created_for_a_frame_that_does_not_fit(spark, url) -> None:
    with pytest.raises(siltstone.Invalid, match="absent"):
        kv.bulk_load(pairs(spark), url, key="absent")
    intervals = spark.range(3).selectExpr("id", "INTERVAL '1' DAY AS many")
    with pytest.raises(siltstone.Invalid, match="many"):
        kv.bulk_load(intervals, url, key="id")
    nested = spark.range(3).selectExpr("array(id) AS id", "1 AS n")
    with pytest.raises(siltstone.Unsupported, match=r"key is not nested.*id list<int64>"):
        kv.bulk_load(nested, url, key="id")
    with pytest.raises(siltstone.NotFound):
        kv.delete(pairs(spark), url, key="key")
    assert not Path(url).exists()


@SOURCES
def test_saving_creates_the_database(spark, url) -> None:
    for mode in ("append", "overwrite", "append"):
        pairs(spark).write.format("siltstone").mode(mode).save(url)
        assert count(url) == 10
    orders = wide(spark).write.format("siltstone").mode("append")
    with pytest.raises(Exception, match=r"table\.create|no column 'key'"):
        orders.save(url + "-table")
    assert not Path(url + "-table").exists()
    for _ in range(2):
        orders.option("keyColumn", "note, id desc").save(url + "-table")
    assert key_of(url + "-table") == ["note", "id"]
    rows = spark.read.format("siltstone").option("numPartitions", 1).load(url + "-table")
    assert [row.id for row in rows.collect()] == list(range(9, -1, -1))
    assert count(url + "-table") == 10
    with pytest.raises(Exception, match="its key is note, id"):
        orders.option("keyColumn", "id").save(url + "-table")


@pytest.mark.parametrize("way", [pytest.param("format", marks=STREAM_SINKS), "foreachBatch"])
@pytest.mark.parametrize("rows", [10, 0])
def test_a_stream_creates_the_database(spark, url, tmp_path, way, rows) -> None:
    pairs(spark, rows).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("key string, value string").parquet(str(tmp_path / "in"))
    writing = stream.writeStream.option("checkpointLocation", str(tmp_path / "progress"))
    if way == "format":
        writing = writing.format("siltstone").option("path", url)
    else:
        writing = writing.foreachBatch(kv.upsert(url, key="key", txn_app="stream"))
    finished(writing.trigger(availableNow=True).start())
    assert count(url) == rows


@SOURCES
def test_readers_create_nothing(spark, url) -> None:
    with pytest.raises(Exception, match="NotFound"):
        spark.read.format("siltstone").load(url).collect()
    with pytest.raises(siltstone.NotFound):
        kv.scan(spark, url)
    with pytest.raises(siltstone.NotFound):
        kv.lookup(pairs(spark), url, key="key")
    assert not Path(url).exists()


@SOURCES
def test_a_reader_of_an_empty_path_says_how_to_create_it(spark, url) -> None:
    for read in (
        lambda: spark.read.format("siltstone").load(url).collect(),
        lambda: kv.scan(spark, url),
        lambda: kv.lookup(pairs(spark), url, key="key"),
        lambda: kv.get(url),
        lambda: kv.changes(spark, url),
        lambda: kv.verify(spark, url),
        lambda: kv.delete(pairs(spark), url, key="key"),
    ):
        with pytest.raises(Exception, match=r"NotFound|no database") as failed:
            read()
        assert "bulk_load" in str(failed.value)
    assert not Path(url).exists()


@SOURCES
def test_insert_into_a_view_creates_a_database_of_bytes(spark, url) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW made USING siltstone OPTIONS (path '{url}')")
    with pytest.raises(Exception, match="NotFound"):
        spark.sql("SELECT * FROM made").collect()
    assert not Path(url).exists()
    spark.sql("INSERT INTO made VALUES (X'61', X'62')")
    assert key_of(url) is None
    assert [bytes(row.key) for row in spark.sql("SELECT * FROM made").collect()] == [b"a"]


@SOURCES
def test_a_view_of_bytes_may_declare_strings(spark, url) -> None:
    view = "CREATE OR REPLACE TEMPORARY VIEW texts ({}) USING siltstone OPTIONS (path '{}')"
    spark.sql(view.format("key STRING, value STRING", url))
    spark.sql("INSERT INTO texts VALUES ('a', '1'), ('é', '2')")
    assert key_of(url) is None
    assert [tuple(row) for row in spark.table("texts").collect()] == [("a", "1"), ("é", "2")]
    assert spark.sql("SELECT value FROM texts WHERE key = 'é'").first().value == "2"
    mixed = spark.read.format("siltstone").schema("VALUE string, key binary").load(url)
    assert [(row.VALUE, bytes(row.key)) for row in mixed.where("VALUE = '1'").collect()] == [
        ("1", b"a")
    ]
    spark.sql("INSERT INTO texts VALUES (X'FF', 'no text')")
    spark.sql(view.format("key STRING, value STRING", url))
    with pytest.raises(Exception, match="not UTF-8: ask for key BINARY"):
        spark.table("texts").collect()
    spark.sql(view.format("key BINARY, value STRING", url))
    assert spark.sql("SELECT value FROM texts WHERE key = X'FF'").first().value == "no text"
    spark.sql(view.format("key STRING, value INT", url))
    with pytest.raises(Exception, match=r"int\(string\(value\)\) AS n"):
        spark.table("texts").collect()


@SOURCES
def test_a_null_in_a_column_that_a_view_declares_not_null(spark, url) -> None:
    view = "CREATE OR REPLACE TEMPORARY VIEW strict (id BIGINT NOT NULL, n BIGINT {}) USING "
    view += f"siltstone OPTIONS (path '{url}', keyColumn 'id')"
    spark.sql(view.format("NOT NULL"))
    spark.sql("INSERT INTO strict VALUES (1, 2)")
    for values in ("(2, null)", "(null, 2)"):
        with pytest.raises(Exception, match="NOT_NULL"):
            spark.sql(f"INSERT INTO strict VALUES {values}")
    assert spark.sql("SELECT sum(n + 1) AS n FROM strict").first().n == 3
    kv.bulk_load(spark.sql("SELECT 2L AS id, CAST(null AS bigint) AS n"), url, key=["id"])
    spark.sql(view.format("NOT NULL"))
    with pytest.raises(Exception, match="'n' was declared NOT NULL"):
        spark.sql("SELECT * FROM strict").collect()
    spark.sql(view.format(""))
    assert spark.sql("SELECT count(*) AS n FROM strict WHERE n IS NULL").first().n == 1


def test_a_key_that_occurs_twice_is_named(spark, url) -> None:
    """A task knows only the numbers of its rows."""
    twice = spark.sql("SELECT * FROM VALUES ('a', '1'), ('b', '2'), ('b', '3') AS (key, value)")
    for write in (
        lambda: kv.bulk_load(twice, url, key="key"),
        lambda: kv.upsert(url, key="key", duplicates="error", txn_app="x")(twice, 0),
        lambda: kv.merge(twice, url, key="key"),
    ):
        with pytest.raises(siltstone.Invalid, match=r"key \('b',\), .*dropDuplicates\(\['key'\]\)"):
            write()
        with pytest.raises(siltstone.NotFound):
            kv.count(url)


def test_columns_that_a_database_of_bytes_has_no_place_for(spark, url, caplog) -> None:
    pair = spark.sql("SELECT 'a' AS id, 'x' AS value")
    kv.bulk_load(pair, url, key="id", value="value")
    wide = spark.sql("SELECT 'a' AS id, 'y' AS value, 1 AS n, 'put' AS op")
    for write, named in (
        (lambda: kv.bulk_load(wide, url, key="id"), "n, op"),
        (lambda: kv.bulk_load(wide, url, key="ID", op="OP"), "n"),
        (lambda: kv.merge(wide, url, key="id"), "n, op"),
        (lambda: kv.upsert(url, key="id", txn_app="x")(wide, 0), "n, op"),
        (lambda: kv.bulk_load(wide, url, key="id", value="value"), None),
        (lambda: kv.bulk_load(wide.drop("n"), url, key="ID", op="OP"), None),
        (lambda: kv.bulk_load(wide.drop("op"), url, key="id", duplicates=("max", "N")), None),
        (lambda: kv.delete(wide.where("id = 'b'"), url, key="id"), None),
    ):
        caplog.clear()
        write()
        told = [text for text in caplog.messages if "are not written" in text]
        assert [text.startswith(f"the columns {named} are") for text in told] == [True] * bool(
            named
        )
    with siltstone.open_reader(url) as reader:
        assert dict(reader.scan()) == {b"a": b"y"}


@SOURCES
def test_insert_into_a_view_with_columns_creates_a_table(spark, url) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW made (country STRING, day INT, note STRING) "
        f"USING siltstone OPTIONS (path '{url}', keyColumn 'country, day desc')"
    )
    for day in (1, 2):
        spark.sql(f"INSERT INTO made VALUES ('DE', {day}, 'x')")
    assert key_of(url) == ["country", "day"]
    assert sorted(row.day for row in spark.sql("SELECT * FROM made").collect()) == [1, 2]


@SOURCES
def test_a_view_reads_what_was_inserted_through_it(spark, url) -> None:
    """Only columns named key and value make a database of bytes, which has no other names."""
    view = (
        "CREATE OR REPLACE TEMPORARY VIEW made (id STRING, value STRING) "
        f"USING siltstone OPTIONS (path '{url}', keyColumn 'id')"
    )
    spark.sql(view)
    spark.sql("INSERT INTO made VALUES ('a', '1')")
    # The query of the first INSERT has no nulls, and the view's columns may have some.
    spark.sql("INSERT INTO made SELECT NULL, '2'")
    spark.sql(view)
    assert sorted(map(tuple, spark.table("made").collect()), key=str) == [("a", "1"), (None, "2")]
    assert key_of(url) == ["id"]
    options = {"keyColumn": "id", "valueColumn": "value"}
    spark.table("made").where("id = 'a'").write.format("siltstone").mode("append").options(
        **options
    ).save(url + "-2")
    assert key_of(url + "-2") is None
    strings = spark.read.format("siltstone").schema("id string, value string")
    with pytest.raises(Exception, match=r"Leave the schema out.*string\(key\)"):
        strings.load(url + "-2").collect()


@SOURCES
@pytest.mark.parametrize(
    "options",
    [
        {"keyColumn": "country, id"},
        {"layout": "runs"},
        {"timeout": "60"},
        {"txnAppId": "nightly", "txnVersion": "1"},
        {"saveMode": "append", "takeOver": "false", "opColumn": "op"},
    ],
)
def test_a_view_with_options_of_writing_keeps_its_state(spark, orders, options) -> None:
    def load():
        return spark.read.format("siltstone").options(**options).load(orders)

    frame = load()
    spoken = ", ".join(f"{name} '{text}'" for name, text in options.items())
    view = (
        f"CREATE OR REPLACE TEMPORARY VIEW kept USING siltstone OPTIONS (path '{orders}', {spoken})"
    )
    spark.sql(view)
    new = spark.sql("SELECT 'US' AS country, 7L AS id, 'new' AS note")
    rows = kv.count(orders)
    kv.bulk_load(new, orders, key=["country", "id"])
    assert (frame.count(), spark.table("kept").count()) == (rows, rows)
    spark.sql(view)
    assert (load().count(), spark.table("kept").count()) == (rows + 1, rows + 1)


@SOURCES
def test_a_view_with_varchar_names_the_remedy(spark, url) -> None:
    """Spark hands the columns of a view to the source when it is read, and not when it is made."""
    for number, key in enumerate(("key", "id")):
        place = f"{url}-{number}"
        named = "" if key == "key" else f", keyColumn '{key}'"
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW short ({key} VARCHAR(10), value STRING) "
            f"USING siltstone OPTIONS (path '{place}'{named})"
        )
        spark.sql("INSERT INTO short VALUES ('a', 'b')")
        with pytest.raises(Exception, match=r"VARCHAR.*declare the column as STRING"):
            spark.sql("SELECT * FROM short").collect()


@SOURCES
def test_a_view_with_options_of_reading_is_inserted_into(spark, url) -> None:
    def insert(**options: str) -> None:
        spoken = ", ".join(f"{name} '{text}'" for name, text in options.items())
        made = f"made USING siltstone OPTIONS (path '{url}', {spoken})"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {made}")
        spark.sql("INSERT INTO made VALUES (X'61', X'62')")

    insert(numPartitions="2", checkpointLifetime="2h", filterPushdown="false")
    assert count(url) == 1
    for name, text in {"start": "a", "END": "b", "prefix": "a", "versionAsOf": "1"}.items():
        with pytest.raises(Exception, match=f"(?i)option '{name}'.*view with it is read-only"):
            insert(**{name: text})
    with pytest.raises(Exception, match=r"(?i)no option 'numpartition'"):
        insert(numPartition="2")


def test_a_pair_by_another_name_is_warned_of(spark, url, caplog) -> None:
    named = pairs(spark).selectExpr("key AS id", "value")
    for place, more in ((url, {"key": "id"}), (url + "-2", {"key": "id", "value": "value"})):
        kv.bulk_load(named, place, **more)
        assert key_of(place) is None
        assert ("key=['id']" in caplog.text) is (place == url)
        caplog.clear()
    kv.bulk_load(named, url, key="id")
    kv.bulk_load(pairs(spark), url + "-3", key="KEY")
    assert not caplog.text


def test_a_load_that_must_create_refuses_a_database(spark, url) -> None:
    assert kv.bulk_load(pairs(spark), url, key="key", mode="errorifexists").rows == 10
    more = pairs(spark, 20)
    for mode in ("errorifexists", "error"):
        with pytest.raises(siltstone.Conflict, match="append"):
            kv.bulk_load(more, url, key="key", mode=mode)
    assert kv.bulk_load(more, url, key="key", mode="ignore").rows == 0
    assert count(url) == 10
    assert kv.bulk_load(more, url + "-2", key="key", mode="ignore").rows == 20
    named = {"key": "key", "mode": "errorifexists", "txn": ("app", 1)}
    assert not kv.bulk_load(pairs(spark), url + "-3", **named).repeated
    assert kv.bulk_load(pairs(spark), url + "-3", **named).repeated


@SOURCES
def test_saving_with_a_save_mode(spark, url) -> None:
    # Spark refuses these modes for every data source in Python before it asks the source.
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(Exception, match="SAVE_MODE"):
            pairs(spark).write.format("siltstone").mode(mode).save(url)
    assert not Path(url).exists()
    for mode in ("errorifexists", "ignore"):
        place = f"{url}-{mode}"
        writer = pairs(spark).write.format("siltstone").mode("append").option("saveMode", mode)
        writer.save(place)
        assert count(place) == 10
        more = pairs(spark, 20).write.format("siltstone").mode("append").option("saveMode", mode)
        if mode == "ignore":
            more.save(place)
        else:
            with pytest.raises(Exception, match="Conflict"):
                more.save(place)
        assert count(place) == 10
    with pytest.raises(Exception, match="saveMode"):
        writer.option("saveMode", "other").save(url)


# --- names of columns -----------------------------------------------------------------------------


@pytest.fixture
def orders(spark, url: str) -> str:
    frame = spark.range(20).selectExpr("IF(id < 10, 'DE', 'FR') AS country", "id", "'old' AS Note")
    kv.bulk_load(frame, url, key=["country", "id"])
    return url


def note(url: str, country: str, id: int) -> str | None:
    with siltstone.open_reader(url) as reader:
        row = reader.table.get({"country": country, "id": id})
        return None if row is None else row["Note"]


@SOURCES
def test_columns_of_a_table_are_found_in_any_case(spark, orders) -> None:
    def row(number: int, op: str = "put"):
        return spark.sql(f"SELECT 'new' AS note, {number}L AS ID, 'DE' AS Country, '{op}' AS Op")

    kv.bulk_load(row(1).drop("Op"), orders, key=["COUNTRY", "Id"])
    kv.bulk_load(row(2), orders, key=["country", "id"], op="op", duplicates=("max", "NOTE"))
    kv.bulk_load(row(3, "delete"), orders, key=["country", "id"], op="OP")
    kv.upsert(orders, key=["Country", "ID"], txn_app="x", value="NOTE", op="op")(row(4), 1)
    writer = row(5).write.format("siltstone").mode("append")
    writer.option("opColumn", "OP").save(orders)
    kv.delete(row(6), orders, key=["COUNTRY", "id"])
    found = [note(orders, "DE", number) for number in range(8)]
    assert found == ["old", "new", "new", None, "new", "new", None, "old"]
    twice = row(1).drop("Op").selectExpr("*", "note AS NOTE")
    with pytest.raises(siltstone.Invalid, match="both have the name"):
        kv.bulk_load(twice, orders, key=["country", "id"])


@SOURCES
def test_columns_that_are_read_are_found_in_any_case(spark, orders) -> None:
    frame = kv.scan(spark, orders, where={"COUNTRY": "DE"}, columns=["NOTE", "ID"])
    assert frame.columns == ["Note", "id"]
    assert frame.count() == 10
    asked = spark.sql("SELECT 'DE' AS Land, 7L AS Number")
    found = kv.lookup(asked, orders, key=["LAND", "number"], select={"NOTE": "found"})
    assert found.first().found == "old"
    shown = spark.read.format("siltstone").schema("COUNTRY string, note string").load(orders)
    assert shown.columns == ["COUNTRY", "note"]
    assert shown.where("country = 'FR' AND note = 'old'").count() == 10


def test_columns_of_bytes_are_found_in_any_case(spark, url) -> None:
    named = pairs(spark).selectExpr("key AS K", "value AS Value")
    kv.bulk_load(named, url, key="k")
    assert count(url) == 10
    found = kv.lookup(named.select("K"), url, key="k", select=["value"])
    assert found.where("value IS NULL").count() == 0
    assert kv.scan(spark, url, columns=["KEY"]).columns == ["key"]
    kv.delete(named, url, key="k")
    assert count(url) == 0


@SOURCES
def test_a_frame_of_bytes_is_saved_in_any_case(spark, url) -> None:
    named = pairs(spark).selectExpr("key AS KEY", "value AS Value")
    named.write.format("siltstone").mode("append").save(url)
    shown = spark.read.format("siltstone").schema("VALUE binary").load(url)
    assert sorted(bytes(row.VALUE) for row in shown.collect()) == [b"%d" % n for n in range(10)]


def test_a_table_with_names_that_differ_in_case_alone(spark, url) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("A", pa.string())])
    table.create(url, schema, key=["id"]).close()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        both = frame_of_table(spark, pa.table({"id": [1], "a": ["small"], "A": ["large"]}))
        kv.bulk_load(both, url, key="id")
        assert kv.scan(spark, url).select("A").first()[0] == "large"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_names_are_exact_in_a_session_that_distinguishes_case(spark, orders) -> None:
    row = spark.sql("SELECT 'DE' AS country, 1L AS ID, 'new' AS Note")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(siltstone.Invalid, match="'ID'"):
            kv.bulk_load(row, orders, key=["country", "id"])
        with pytest.raises(siltstone.Invalid, match="note"):
            kv.scan(spark, orders, columns=["note"])
        with pytest.raises(siltstone.Invalid, match="'id'"):
            kv.lookup(row, orders, key=["country", "id"])
        with pytest.raises(siltstone.Invalid, match="'id'"):
            kv.delete(row, orders, key=["country", "id"])
        with pytest.raises(siltstone.Invalid, match="'ID'"):
            kv.upsert(orders, key=["country", "id"], txn_app="x")(row, 1)
        # A column whose name differs in case is another column.
        found = kv.lookup(
            row.drop("Note").selectExpr("country", "ID", "1 AS note"), orders, key=["country", "ID"]
        )
        assert found.columns == ["country", "ID", "note", "Note"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@SOURCES
def test_the_format_takes_case_as_an_option(spark, orders) -> None:
    row = spark.sql("SELECT 'DE' AS country, 1L AS ID, 'new' AS Note")
    writer = row.write.format("siltstone").mode("append").option("caseSensitive", "true")
    with pytest.raises(Exception, match="'ID'"):
        writer.save(orders)
    reader = spark.read.format("siltstone").schema("note string").option("caseSensitive", "true")
    with pytest.raises(Exception, match="'note'"):
        reader.load(orders).collect()


# --- SQL ------------------------------------------------------------------------------------------


@SOURCES
def test_a_view_with_a_transaction_has_the_tables_columns(spark, orders) -> None:
    options = f"path '{orders}', txnAppId 'nightly', txnVersion '1'"
    for _ in range(2):
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW target USING siltstone OPTIONS ({options})")
        spark.sql("INSERT INTO target VALUES ('US', 1, 'new')")
    assert note(orders, "US", 1) == "new"
    for option in ("layout 'runs'", "timeout '60'", "targetSstBytes '1000'", "takeOver 'false'"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW target USING siltstone "
            f"OPTIONS (path '{orders}', {option})"
        )
        assert spark.table("target").columns == ["country", "id", "Note"]
        spark.sql(f"INSERT INTO target VALUES ('US', {len(option)}, 'new')")
        assert note(orders, "US", len(option)) == "new"


@SOURCES
def test_create_table_names_what_works(spark, url) -> None:
    siltstone.open(url).close()
    way = re.escape("CREATE TEMPORARY VIEW name USING siltstone")
    name = "made_by_create_table"
    try:
        spark.sql(
            f"CREATE TABLE {name} (key binary, value binary) USING siltstone OPTIONS (path '{url}')"
        )
        with pytest.raises(Exception, match=way):
            spark.sql(f"INSERT INTO {name} VALUES (X'61', X'62')")
        with pytest.raises(Exception, match=way):
            spark.sql(f"SELECT * FROM {name}").collect()
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    for made in (
        lambda: spark.sql(f"CREATE TABLE {name} USING siltstone OPTIONS (path '{url}')"),
        lambda: spark.sql(f"CREATE TABLE {name} USING siltstone LOCATION '{url}'"),
        lambda: spark.catalog.createTable(name, source="siltstone", path=url),
    ):
        try:
            with pytest.raises(Exception, match=way):
                made()
        finally:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW works USING siltstone OPTIONS (path '{url}')")
    spark.sql("INSERT INTO works VALUES (X'61', X'62')")
    assert count(url) == 1


def test_the_value_columns_of_a_new_table_are_nullable(spark, url) -> None:
    """Whether a frame's column is nullable depends on how the frame was made."""
    literal = spark.sql("SELECT 'a' AS id, 1 AS n, array(1) AS many, map('k', 1) AS named")
    kv.bulk_load(literal, url, key=["id"])
    nulls = spark.sql(
        "SELECT 'b' AS id, int(NULL) AS n, array(int(NULL)) AS many, map('k', int(NULL)) AS named"
    )
    kv.bulk_load(nulls, url, key=["id"])
    found = kv.scan(spark, url, where={"id": "b"}).first()
    assert found[1:] == (None, [None], {"k": None})
    with siltstone.open_reader(url) as reader:
        fields = pa.schema(reader.table.schema)
    assert [field.nullable for field in fields] == [False, True, True, True]


@SOURCES
def test_a_null_can_be_inserted_after_the_first_row(spark, url) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW nullable (k STRING, n INT) "
        f"USING siltstone OPTIONS (path '{url}', keyColumn 'k')"
    )
    spark.sql("INSERT INTO nullable VALUES ('a', 1)")
    spark.sql("INSERT INTO nullable VALUES ('b', NULL)")
    assert count(url) == 2


def test_a_null_in_a_column_without_nulls_names_the_remedy(spark, url) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table.create(url, columns, key=["id"]).close()
    frame = spark.sql("SELECT 1L AS id, bigint(NULL) AS n")
    with pytest.raises(siltstone.Invalid, match=r"not null .*db\.table\.allow_nulls\('n'\)"):
        kv.bulk_load(frame, url, key=["id"])
    kv.bulk_load(spark.range(1).selectExpr("id", "1 AS n"), url + "-2", key=["id"])
    with pytest.raises(siltstone.Invalid, match=r"not null .*a key cannot be changed: filter"):
        kv.bulk_load(spark.sql("SELECT bigint(NULL) AS id, 1 AS n"), url + "-2", key=["id"])
