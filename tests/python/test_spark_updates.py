"""Updates of some columns, loads with expiry, counts in SQL, and frames with nested types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import siltstone
import siltstone.spark as kv
from pace_for_tests import finished
from siltstone import table
from siltstone.spark import _merge
from spark_versions_for_tests import SOURCES, STREAM_SINKS

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

LATER = "timestamp'2100-01-01 00:00:00+00:00'"
LONG_AGO = "timestamp'2001-01-01 00:00:00+00:00'"


@pytest.fixture
def places(url: str) -> str:
    """A table of six rows. No note is null."""
    schema = pa.schema(
        [
            pa.field("land", pa.string()),
            pa.field("id", pa.int64()),
            pa.field("note", pa.string(), nullable=False),
            pa.field("n", pa.int64()),
        ]
    )
    rows = [{"land": "DE", "id": id, "note": "old", "n": id * 10} for id in range(6)]
    with table.create(url, schema, key=["land", "id"]) as db:
        db.table.put(rows).wait()
    return url


def rows_of(url: str) -> dict[int, tuple]:
    with siltstone.open_reader(url) as reader:
        found = pa.table(reader.table.scan()).to_pylist()
    return {row["id"]: (row["note"], row["n"]) for row in found}


# --- versions without rows ------------------------------------------------------------------------


def versions(url: str) -> dict[str, int]:
    apps = siltstone.admin.manifest(url)["ingest_apps"]
    return {one["app"]: one["version"] for one in apps}


@pytest.mark.parametrize(
    "write",
    [
        lambda df, url, **txn: kv.bulk_load(df, url, key=["land", "id"], **txn),
        lambda df, url, **txn: kv.bulk_load(df, url, key=["land", "id"], layout="runs", **txn),
        lambda df, url, **txn: kv.delete(df, url, key=["land", "id"], **txn),
        lambda df, url, **txn: kv.merge(df, url, key=["land", "id"], **txn),
        lambda df, url, **txn: kv.update_columns(df, url, key=["land", "id"], **txn),
    ],
    ids=["range", "runs", "delete", "merge", "update"],
)
def test_a_version_without_rows_is_recorded(spark, places, write) -> None:
    """Without the record, a repeated call would be applied to a newer state."""
    rows = spark.sql("SELECT 'DE' AS land, 1L AS id, 'new' AS note, 7L AS n")
    before = rows_of(places)
    none = write(rows.where("false"), places, txn=("app", 5))
    assert (none.rows, none.bytes, none.repeated) == (0, 0, False)
    assert none.seq is not None
    again = write(rows, places, txn=("app", 5))
    assert (again.repeated, again.seq) == (True, none.seq)
    with pytest.raises(siltstone.Conflict, match="versions only grow"):
        write(rows, places, txn=("app", 4))
    assert rows_of(places) == before
    assert versions(places) == {"app": 5}
    assert write(rows, places, txn=("app", 6)).rows == 1
    assert write(rows.where("false"), places).seq is None


def test_a_merge_that_found_nothing_is_not_applied_later(spark, places) -> None:
    rows = spark.sql("SELECT 'DE' AS land, 77L AS id, 'new' AS note, 7L AS n")

    def purge():
        more = {"when_matched": "delete", "when_not_matched": None, "txn": ("purge", 1)}
        return kv.merge(rows, places, key=["land", "id"], **more)

    assert not purge().repeated
    kv.bulk_load(rows, places, key=["land", "id"])
    assert purge().repeated
    assert 77 in rows_of(places)
    kinds = [row.kind for row in kv.changes(spark, places).collect()]
    assert kinds == ["put"] * 6 + ["delete_range", "put"]
    assert not kv.verify(spark, places).problems


@pytest.mark.skipif(not SOURCES, reason="data sources in Python: from Spark 4.0 on")
def test_a_frame_without_rows_records_its_version(spark, places) -> None:
    rows = spark.sql("SELECT 'DE' AS land, 1L AS id, 'new' AS note, 7L AS n")

    def write(frame, **options: str) -> None:
        writer = frame.write.format("siltstone").mode("append").options(**options)
        writer.save(places)

    before = rows_of(places)
    write(rows.where("false"), txnAppId="app", txnVersion="5")
    write(rows, txnAppId="app", txnVersion="5")
    assert rows_of(places) == before
    with pytest.raises(Exception, match="versions only grow"):
        write(rows, txnAppId="app", txnVersion="4")
    write(rows.where("false"))
    assert versions(places) == {"app": 5}


# --- updates of some columns ----------------------------------------------------------------------


def test_only_the_columns_of_the_frame_are_set(spark, places) -> None:
    new = spark.sql(
        "SELECT * FROM VALUES ('DE', 1L, 7L), ('DE', 2L, NULL), ('DE', 9L, 8L) AS (land, id, n)"
    )
    done = kv.update_columns(new, places, key=["land", "id"], txn=("app", 1))
    assert (done.rows, done.repeated) == (2, False)
    found = rows_of(places)
    assert len(found) == 6
    assert found[1] == ("old", 7)
    assert found[2] == ("old", None)
    assert found[3] == ("old", 30)
    names = spark.sql("SELECT 'new' AS NOTE, 3L AS ID, 'DE' AS land")
    kv.update_columns(names, places, key=["land", "id"])
    assert rows_of(places)[3] == ("new", 30)


def test_an_update_is_applied_once(spark, places) -> None:
    key = ["land", "id"]
    for n, version, repeated in ((7, 1, False), (8, 1, True), (9, 2, False)):
        new = spark.sql(f"SELECT 'DE' AS land, 1L AS id, {n}L AS n")
        done = kv.update_columns(new, places, key=key, txn=("app", version))
        assert done.repeated == repeated
    assert rows_of(places)[1] == ("old", 9)
    with pytest.raises(siltstone.Conflict):
        kv.update_columns(new, places, key=key, txn=("app", 1))


@pytest.mark.parametrize("call", [kv.merge, kv.update_columns])
def test_a_column_that_is_added_during_an_update_is_kept(spark, places, monkeypatch, call) -> None:
    """The rows of the tasks may have a column that the table did not have when the call began."""
    kept_for_a_call = _merge.kept_for_a_call

    def later(*given, **named):
        with siltstone.open(places) as db:
            db.table.add_column(pa.field("more", pa.string()))
            row = {"land": "DE", "id": 1, "note": "new", "n": 1, "more": "kept"}
            db.table.put([row]).wait()
        return kept_for_a_call(*given, **named)

    monkeypatch.setattr(_merge, "kept_for_a_call", later)
    changed = spark.sql("SELECT 'DE' AS land, 1L AS id, 'set' AS note")
    assert call(changed, places, key=["land", "id"]).rows == 1
    monkeypatch.undo()
    row = kv.scan(spark, places).where("id = 1").first()
    assert (row.note, row.n, row.more) == ("set", 1, "kept")


def test_updates_that_fit_no_row_are_refused(spark, places, tmp_path) -> None:
    key = ["land", "id"]
    before = rows_of(places)
    for text, match in (
        ("SELECT 'DE' AS land, 1L AS id", "the key alone"),
        ("SELECT 'DE' AS land, 1L AS id, 1L AS absent", "absent"),
        ("SELECT 'DE' AS land, 1L AS id, 1 AS n", "type int"),
        ("SELECT 'DE' AS land, 5L AS n", "no column 'id'"),
        ("SELECT 'DE' AS land, id % 2 AS id, 1L AS n FROM range(4)", "have the key"),
        ("SELECT 'DE' AS land, 1L AS id, string(NULL) AS note", "note"),
    ):
        with pytest.raises(siltstone.Invalid, match=match):
            kv.update_columns(spark.sql(text), places, key=key)
    assert rows_of(places) == before
    pair = spark.sql("SELECT 'a' AS key, 'b' AS value")
    with pytest.raises(siltstone.NotFound, match="bulk_load"):
        kv.update_columns(pair, tmp_path / "absent", key="key")
    kv.bulk_load(pair, tmp_path / "bytes", key="key")
    with pytest.raises(siltstone.Invalid, match="merge"):
        kv.update_columns(pair, tmp_path / "bytes", key="key")


# --- expiry ---------------------------------------------------------------------------------------


def expiries(url: str) -> dict[bytes, datetime | None]:
    with siltstone.open(url) as db:
        return {key: db.get_entry(key).expires for key in db}


def test_rows_expire_after_a_time_to_live(spark, url) -> None:
    pairs = spark.range(4).selectExpr("string(id) AS key", "'v' AS value")
    kv.bulk_load(pairs, url, key="key", ttl="2h")
    ends = set(expiries(url).values())
    # One time for all rows of all tasks.
    assert len(ends) == 1
    assert timedelta(hours=1) < ends.pop() - datetime.now(UTC) < timedelta(hours=2)
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    kv.bulk_load(pairs, url, key="key", expire_at=moment, layout="runs")
    assert set(expiries(url).values()) == {moment}
    kv.bulk_load(pairs, url, key="key")
    assert set(expiries(url).values()) == {None}


@pytest.mark.parametrize("duplicates", ["error", "any"])
def test_each_row_has_its_own_expiry(spark, url, duplicates) -> None:
    whole = spark.sql(
        "SELECT string(id) AS key, 'v' AS value, IF(id = 5, 'd', 'c') AS op, CASE id % 3 WHEN 0 "
        f"THEN {LATER} + make_dt_interval(int(id)) WHEN 1 THEN NULL ELSE {LONG_AGO} END AS ends "
        "FROM range(7)"
    )
    kv.bulk_load(spark.sql("SELECT '5' AS key, 'v' AS value"), url, key="key")
    kv.bulk_load(whole, url, key="key", op="op", expire_at="ENDS", duplicates=duplicates)
    first = datetime(2100, 1, 1, tzinfo=UTC)
    assert expiries(url) == {
        b"0": first,
        b"1": None,
        b"3": first + timedelta(days=3),
        b"4": None,
        b"6": first + timedelta(days=6),
    }


def test_the_greatest_row_of_a_key_brings_its_expiry(spark, url) -> None:
    rows = spark.sql(
        f"SELECT 'k' AS key, string(id) AS value, id, IF(id = 2, {LATER}, NULL) AS ends "
        "FROM range(3)"
    )
    kv.bulk_load(rows, url, key="key", value="value", duplicates=("max", "id"), expire_at="ends")
    assert expiries(url) == {b"k": datetime(2100, 1, 1, tzinfo=UTC)}


def test_rows_of_tables_expire(spark, url) -> None:
    rows = spark.sql(
        f"SELECT id, 'x' AS note, IF(id < 2, {LONG_AGO}, {LATER}) AS ends FROM range(5)"
    )
    kv.bulk_load(rows, url, key="id", expire_at="ends")
    # The column is not part of the table that the load creates.
    assert kv.scan(spark, url).columns == ["id", "note"]
    assert sorted(row.id for row in kv.scan(spark, url).collect()) == [2, 3, 4]
    # Here it is.
    kv.bulk_load(rows, url + "-2", key=["id"])
    kv.bulk_load(rows, url + "-2", key="id", expire_at="ends")
    assert kv.scan(spark, url + "-2").columns == ["id", "note", "ends"]
    assert kv.count(url + "-2") == 3


FIRST = datetime(2100, 1, 1, tzinfo=UTC)
ENDING = f"SELECT string(id) AS key, 'v' AS value, IF(id = 1, {LATER}, NULL) AS ends FROM range(2)"


def is_in_an_hour(moment: datetime | None) -> bool:
    return moment is not None and timedelta(0) < moment - datetime.now(UTC) < timedelta(hours=1)


def test_an_update_keeps_the_expiry_of_a_row(spark, places) -> None:
    ends = spark.sql(f"SELECT 'DE' AS land, 3L AS id, 'x' AS note, 1L AS n, {LATER} AS ends")
    kv.bulk_load(ends, places, key=["land", "id"], expire_at="ends")
    new = spark.sql("SELECT 'DE' AS land, id, 7L AS n FROM range(2, 4)")
    kv.update_columns(new, places, key=["land", "id"])
    assert rows_of(places)[3] == ("x", 7)
    with siltstone.open(places) as db:
        times = [db.get_entry(key).expires for key in db]
    assert times == [None] * 3 + [FIRST] + [None] * 2


def test_merged_rows_expire(spark, url) -> None:
    rows = spark.sql(ENDING)
    kv.merge(rows, url, key="key", expire_at="ends")
    assert expiries(url) == {b"0": None, b"1": FIRST}
    kv.merge(rows.select("key", "value"), url, key="key", ttl="1h")
    assert all(is_in_an_hour(moment) for moment in expiries(url).values())
    kept = expiries(url)
    new = rows.selectExpr("key", "'new' AS value").unionAll(spark.sql("SELECT '2', 'new'"))
    kv.merge(new, url, key="key")
    assert expiries(url) == {**kept, b"2": None}
    kv.merge(rows.select("key", "value"), url, key="key", expire_at=FIRST)
    assert expiries(url) == {b"0": FIRST, b"1": FIRST, b"2": None}
    # A table without the column of expiry times, which has the default name of the operations.
    place = url + "-2"
    typed = spark.sql(f"SELECT id, 'x' AS note, {LONG_AGO} AS op FROM range(3)")
    kv.merge(typed.where("id < 2"), place, key="id")
    kv.bulk_load(typed.drop("op"), place + "-3", key="id")
    kv.merge(typed.where("id < 2"), place + "-3", key="id", expire_at="op")
    assert kv.count(place) == 2
    assert kv.scan(spark, place + "-3").columns == ["id", "note"]
    assert [row.id for row in kv.scan(spark, place + "-3").collect()] == [2]
    with pytest.raises(siltstone.Invalid, match="which are note"):
        kv.merge(typed, place + "-3", key="id", expire_at="op", when_matched=["op"])


@pytest.mark.parametrize("way", [pytest.param("format", marks=STREAM_SINKS), "foreachBatch"])
def test_rows_of_streams_expire(spark, url, tmp_path, way) -> None:
    siltstone.open(url).close()
    spark.sql(ENDING).write.parquet(str(tmp_path / "source"))
    source = spark.readStream.schema("key string, value string, ends timestamp")

    def run(place: str, columns: list[str], options: dict[str, str], **named) -> None:
        rows = source.parquet(str(tmp_path / "source")).select(*columns).writeStream
        if way == "format":
            writer = rows.format("siltstone").options(path=place, **options)
        else:
            writer = rows.foreachBatch(kv.upsert(place, key="key", **named))
        checkpoint = str(tmp_path / f"of-{len(columns)}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        finished(query)

    run(url, ["key", "value", "ends"], {"expireAt": "ENDS"}, expire_at="ENDS")
    assert expiries(url) == {b"0": None, b"1": FIRST}
    run(url, ["key", "value"], {"ttl": "59min"}, ttl="59min")
    assert all(is_in_an_hour(moment) for moment in expiries(url).values())
    with pytest.raises(siltstone.Invalid, match="exclude"):
        kv.upsert(url, key="key", ttl="1h", expire_at="ends")


@SOURCES
def test_rows_of_the_data_source_expire(spark, url) -> None:
    def save(rows, place: str, **options: str) -> None:
        rows.write.format("siltstone").mode("append").options(**options).save(place)

    rows = spark.sql(ENDING)
    siltstone.open(url).close()
    save(rows, url, expireAt="Ends")
    assert expiries(url) == {b"0": None, b"1": FIRST}
    save(rows.drop("ends"), url, ttl="1h")
    assert all(is_in_an_hour(moment) for moment in expiries(url).values())
    refused = [
        ({"expireAt": "ends", "ttl": "1h"}, "exclude"),
        ({"expireAt": "value"}, "a timestamp"),
        ({"expireAt": "absent"}, "absent"),
        ({"ttl": "soon"}, "ttl"),
    ]
    for options, text in refused:
        with pytest.raises(Exception, match=text):
            save(rows, url, **options)
    # Tables: the column is stored only if the table has it.
    typed = spark.sql(f"SELECT id, 'x' AS note, 'c' AS what, {LONG_AGO} AS ends FROM range(3)")
    place = url + "-2"
    save(typed, place, keyColumn="id", expireAt="ends", opColumn="what")
    assert kv.count(place) == 0
    save(typed.drop("ends"), place, opColumn="what")
    assert kv.scan(spark, place).columns == ["id", "note"]
    assert kv.count(place) == 3
    with pytest.raises(Exception, match="timestamp; cast it"):
        save(typed, place, expireAt="note", opColumn="what")


def test_times_that_are_none_are_refused(spark, url) -> None:
    rows = spark.sql("SELECT '1' AS key, 'v' AS value, date'2100-01-01' AS day")
    refused = [
        ({"ttl": "1h", "expire_at": "day"}, siltstone.Invalid, "exclude"),
        ({"ttl": 0}, siltstone.Invalid, "ttl"),
        ({"expire_at": "day"}, siltstone.Invalid, "timestamp"),
        ({"expire_at": "absent"}, siltstone.Invalid, "absent"),
        ({"expire_at": datetime(2100, 1, 1)}, TypeError, "time zone"),  # noqa: DTZ001
    ]
    for named, kind, text in refused:
        with pytest.raises(kind, match=text):
            kv.bulk_load(rows, url, key="key", value="value", **named)
    with pytest.raises(siltstone.NotFound):
        kv.count(url)


# --- counts and types -----------------------------------------------------------------------------


def test_a_count_in_sql_decodes_one_column_of_the_key(spark, url) -> None:
    # Spark cannot hold nanoseconds: if `at` were decoded, the query would fail.
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))])
    with table.create(url, schema, key=["id"]) as db:
        db.table.put([{"id": id, "at": None} for id in range(5)]).wait()
    kv.view(spark, "counted", url, columns=["id"])
    assert spark.sql("SELECT count(*) AS n FROM counted").first().n == 5


NESTED = {
    "many": "array(id, CAST(NULL AS BIGINT))",
    "texts": "transform(sequence(0, id), n -> IF(n = 1, NULL, concat('n', n)))",
    "pairs": "map('a', id, 'b', NULL)",
    "part": "IF(id = 2, NULL, named_struct('a', id, 'B c', array(named_struct('d', 1.5D))))",
    "times": "array(timestamp'2026-01-02 03:04:05.678901', timestamp'2026-01-01 00:00:00')",
}


def test_nested_types_are_values_of_tables(spark, url) -> None:
    frame = spark.range(4).selectExpr("id", *(f"{text} AS {name}" for name, text in NESTED.items()))
    kv.bulk_load(frame, url, key="id")
    back = kv.scan(spark, url)
    assert dict(back.dtypes) == dict(frame.dtypes)
    assert sorted(back.collect()) == sorted(frame.collect())
    kv.view(spark, "nested", url)
    found = spark.sql("SELECT part.`B c`[0].d AS d, pairs['a'] AS a FROM nested WHERE id = 3")
    assert found.collect() == [(1.5, 3)]
    found = kv.lookup(spark.sql("SELECT 1L AS id"), url, key="id", select=["texts"])
    assert found.first().texts == ["n0", None]
    part = "named_struct('a', 7L, 'B c', array(named_struct('d', 2.5D))) AS part"
    changed = frame.where("id = 2").selectExpr("id", part)
    kv.update_columns(changed, url, key="id")
    with siltstone.open_reader(url) as reader:
        row = reader.table.get({"id": 2})
        assert row["part"] == {"a": 7, "B c": [{"d": 2.5}]}
        assert row["pairs"] == {"a": 2, "b": None}
        assert row["many"] == [2, None]
    other = frame.drop("many").selectExpr("*", "array('x') AS many")
    with pytest.raises(siltstone.Invalid, match=r"'many' is of type array<string>.*array<bigint>"):
        kv.bulk_load(other, url, key="id")
    rows = kv.changes(spark, url, since="oldest").where("kind = 'put'")
    assert rows.where("id = 3").first().texts == ["n0", None, "n2", "n3"]


@SOURCES
def test_the_source_writes_and_reads_nested_types(spark, url) -> None:
    frame = spark.range(4).selectExpr("id", *(f"{text} AS {name}" for name, text in NESTED.items()))
    frame.write.format("siltstone").mode("append").option("keyColumn", "id").save(url)
    back = spark.read.format("siltstone").load(url)
    assert sorted(back.collect()) == sorted(frame.collect())


@SOURCES
def test_parts_of_nested_columns_are_declared_not_null(spark, url) -> None:
    """A schema that Spark made, or a view, may say that parts have no nulls."""
    frame = spark.sql(
        "SELECT 1 AS id, array(1, 2) AS many, map('a', 1) AS named, "
        "named_struct('n', 1, 'deep', array(named_struct('m', 'x'))) AS part"
    )
    assert not frame.schema["many"].dataType.containsNull
    kv.bulk_load(frame, url, key=["id"])
    reader = spark.read.format("siltstone").schema(frame.schema)
    assert reader.load(url).collect() == frame.collect()
    declared = "id INT, many ARRAY<INT>, named MAP<STRING, INT>, part STRUCT<n: INT NOT NULL, "
    declared += "deep: ARRAY<STRUCT<m: STRING NOT NULL>>>"
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW nested ({declared}) "
        f"USING siltstone OPTIONS (path '{url}')"
    )
    spark.sql("INSERT INTO nested VALUES (2, NULL, NULL, NULL)")
    view = f"CREATE OR REPLACE TEMPORARY VIEW nested ({declared}) USING siltstone"
    spark.sql(f"{view} OPTIONS (path '{url}')")
    assert spark.table("nested").where("id = 2").first()[:] == (2, None, None, None)
    nulls = {
        "part.n": "named_struct('n', int(NULL), 'deep', array(named_struct('m', 'x')))",
        "part.deep.element.m": "named_struct('n', 1, 'deep', array(named_struct('m', note)))",
    }
    for number, (place, part) in enumerate(nulls.items()):
        row = f"3 AS id, array(1) AS many, map('a', 1) AS named, {part} AS part"
        where = f"{url}-{number}"
        kv.bulk_load(
            spark.sql(f"SELECT {row} FROM (SELECT string(NULL) AS note)"), where, key=["id"]
        )
        spark.sql(f"{view} OPTIONS (path '{where}')")
        with pytest.raises(Exception, match=f"'{place}' was declared NOT NULL"):
            spark.table("nested").collect()
    kinds = {"many": "array(1, int(NULL)) AS many", "named": "map('a', int(NULL)) AS named"}
    for number, (name, part) in enumerate(kinds.items()):
        where = f"{url}-kind-{number}"
        kv.bulk_load(spark.sql(f"SELECT 3 AS id, {part}"), where, key=["id"])
        wanted = frame.select("id", name).schema
        with pytest.raises(Exception, match=rf"'{name}\.\w+' was declared NOT NULL"):
            spark.read.format("siltstone").schema(wanted).load(where).collect()


def test_rows_whose_keys_cannot_exist_update_and_delete_nothing(spark, url) -> None:
    fields = [pa.field("k", pa.uint64(), nullable=False), ("v", pa.string())]
    with table.create(url, pa.schema(fields), key=["k"]) as db:
        db.table.put([{"k": 1, "v": "old"}, {"k": 2, "v": "old"}]).wait()
    rows = spark.sql(
        "SELECT cast(k AS DECIMAL(20, 0)) AS k, 'new' AS v FROM VALUES (-1), (1), (NULL) AS (k)"
    )
    with pytest.raises(siltstone.Invalid, match="'k'"):
        kv.merge(rows, url, key="k")
    assert kv.merge(rows, url, key="k", when_not_matched=None).rows == 1
    assert kv.update_columns(rows, url, key="k").rows == 1
    assert kv.count(url) == 2
    assert kv.delete(rows, url, key="k").rows == 1
    matched = kv.merge(rows, url, key="k", when_matched="delete", when_not_matched=None)
    assert matched.rows == 0
    assert [row[:] for row in kv.scan(spark, url).collect()] == [(2, "old")]


# --- columns of nulls alone -----------------------------------------------------------------------


def test_a_column_of_type_void_is_nulls(spark, url) -> None:
    rows = spark.sql("SELECT 'a' AS k, 1 AS n, array(1) AS many, 'x' AS note")
    kv.bulk_load(rows, url, key=["k"])
    kv.bulk_load(spark.sql("SELECT 'b' AS k, NULL AS n, NULL AS many"), url, key=["k"])
    kv.merge(spark.sql("SELECT 'a' AS k, NULL AS n"), url, key=["k"])
    found = {row.k: row[1:] for row in kv.scan(spark, url).collect()}
    assert found == {"a": (None, [1], "x"), "b": (None, None, None)}
    kv.update_columns(spark.sql("SELECT 'a' AS k, NULL AS many"), url, key=["k"])
    assert kv.scan(spark, url, where={"k": "a"}).first().many is None
    asked = spark.sql("SELECT NULL AS k, 1 AS number")
    assert kv.lookup(asked, url, key="k").first().note is None
    assert kv.lookup(asked, url, key="k", how="inner").count() == 0
    first = spark.sql("SELECT 'a' AS k, 'b' AS v, NULL AS n")
    with pytest.raises(siltstone.Invalid, match=r"'n' is of type void.*cast it"):
        kv.bulk_load(first, url + "-new", key=["k"])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("array()", "'v' is of type array<void>, which has a part of type void,"),
        ("map('a', array(NULL))", "'v' is of type map<string,array<void>>, which has a part"),
        ("NULL", "'v' is of type void, and no column"),
    ],
)
def test_a_type_that_no_column_has_is_named_as_a_whole(spark, url, value, named) -> None:
    frame = spark.range(1).selectExpr("id", f"{value} AS v")
    with pytest.raises(siltstone.Invalid, match=named):
        kv.bulk_load(frame, url, key=["id"])


@SOURCES
def test_the_data_source_takes_a_column_of_type_void(spark, url) -> None:
    kv.bulk_load(spark.sql("SELECT 'a' AS k, 1 AS n, array(1) AS many"), url, key=["k"])
    row = spark.sql("SELECT 'b' AS k, NULL AS n, NULL AS many")
    row.write.format("siltstone").mode("append").save(url)
    assert kv.scan(spark, url, where={"k": "b"}).first()[1:] == (None, None)


def test_void_columns_of_a_database_of_bytes(spark, url) -> None:
    kv.bulk_load(spark.sql("SELECT 'a' AS key, 'v' AS value"), url, key="key")
    assert kv.lookup(spark.sql("SELECT NULL AS k"), url, key="k").first().value is None
    gone = spark.sql("SELECT 'a' AS key, NULL AS value, 'delete' AS op")
    kv.bulk_load(gone, url, key="key", op="op", layout="runs")
    assert kv.count(url) == 0
    with pytest.raises(siltstone.Invalid, match="'value' has nulls"):
        kv.bulk_load(gone.drop("op"), url, key="key")


def test_times_in_a_column_that_a_match_keeps_are_refused(spark, url: str) -> None:
    fields = [("id", pa.int64()), ("n", pa.int64()), ("ends", pa.timestamp("us", "UTC"))]
    table.create(url, pa.schema(fields), key=["id"]).close()
    frame = spark.sql(f"SELECT 1L AS id, 2L AS n, {LATER} AS ends")
    with pytest.raises(siltstone.Invalid, match="'ends', which a match keeps as it is stored"):
        kv.merge(frame, url, key="id", when_matched=["n"], expire_at="ends")
    assert kv.merge(frame, url, key="id", when_matched=["n", "ends"], expire_at="ends").rows == 1
