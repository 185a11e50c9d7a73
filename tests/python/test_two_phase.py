"""Creates that are committed in a transactional store (RFC 0052)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone
from dynamodb_for_tests import VARIABLES, dynamodb
from kill_runs_for_tests import killed
from mariadb_for_tests import MISSING as NO_MARIADB
from mariadb_for_tests import mariadb
from mariadb_for_tests import program as mariadb_program
from overwriting_s3_for_tests import OverwritingS3
from pace_for_tests import PATIENCE, quickest
from postgres_for_tests import postgres, programs
from siltstone import admin

KILLS = int(os.environ.get("SILTSTONE_KILLS", "15"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if programs() is None:
        pytest.skip("no PostgreSQL on this machine, and no package pgserver")
    with postgres() as url:
        yield url


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    if mariadb_program() is None:
        pytest.skip(NO_MARIADB)
    with mariadb() as url:
        yield url


@pytest.fixture(scope="module")
def table() -> Iterator[str]:
    with dynamodb() as url:
        yield url


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["sqlite", "postgres", "mysql", "dynamodb"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    servers = {"postgres": "server", "mysql": "mysql", "dynamodb": "table"}
    if request.param == "dynamodb":
        request.getfixturevalue("keys")
    if request.param in servers:
        return str(request.getfixturevalue(servers[request.param]))
    return f"sqlite://{tmp_path}/records"


def late(db: siltstone.Database) -> None:
    """A write of a writer that another one has fenced."""
    db[b"b"] = b"late"
    db.flush()


def test_a_database_lives_by_its_records(tmp_path: Path, records: str) -> None:
    url, options = str(tmp_path / "db"), {"transactional_store": records}
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
        db.flush()
        db[b"b"] = b"2"
    with siltstone.open_reader(url, store_options=options) as reader:
        assert dict(reader.scan()) == {b"a": b"1", b"b": b"2"}
    with siltstone.open(url, store_options=options) as db:
        db[b"c"] = b"3"
        db.compact()
    assert admin.gc(url, store_options=options, min_age=0).trouble is None
    assert admin.verify(url, store_options=options).problem_count == 0
    with siltstone.open(url, store_options=options) as db:
        assert len(list(db.scan())) == 3
    # The layout is that of every database: only the records are elsewhere.
    names = {path.name for path in Path(url).iterdir()}
    assert {"manifest", "wal", "compacted", "two-phase"} <= names
    left = [path.name for path in (Path(url) / "two-phase").iterdir()]
    assert left == ["namespace"]


def test_a_copy_is_committed_as_its_place_commits(tmp_path: Path, records: str) -> None:
    """The way from one kind of creates to the other is an export, and an import."""
    url, options = str(tmp_path / "db"), {"transactional_store": records}
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    plain, again = str(tmp_path / "plain"), str(tmp_path / "again")
    admin.import_(plain, url, store_options={}, from_store_options=options)
    with siltstone.open(plain) as db:
        db[b"b"] = b"2"
    admin.export(plain, again, store_options={}, to_store_options=options)
    for _ in range(2):
        assert admin.verify(again, store_options=options).problem_count == 0
        with pytest.raises(siltstone.Unsupported, match="`transactional_store`"):
            siltstone.open_reader(again)
        admin.export(plain, again, store_options={}, to_store_options=options)
    admin.promote(again, store_options=options)
    with siltstone.open(again, store_options=options) as db:
        assert dict(db) == {b"a": b"1", b"b": b"2"}


def test_the_variable_stands_in_for_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILTSTONE_TRANSACTIONAL_STORE", f"sqlite://{tmp_path}/records")
    with siltstone.open(str(tmp_path / "db")) as db:
        db[b"a"] = b"1"
    monkeypatch.delenv("SILTSTONE_TRANSACTIONAL_STORE")
    with pytest.raises(siltstone.Unsupported, match=r"`transactional_store`.*sqlite"):
        siltstone.open(str(tmp_path / "db"))


def test_the_two_kinds_of_creates_are_not_mixed(tmp_path: Path) -> None:
    url, options = str(tmp_path / "db"), {"transactional_store": f"sqlite://{tmp_path}/records"}
    siltstone.open(url).close()
    with pytest.raises(siltstone.Unsupported, match="without"):
        siltstone.open(url, store_options=options)
    with pytest.raises(siltstone.Unsupported, match="without"):
        siltstone.open_reader(url, store_options=options)
    siltstone.open(url).close()


@pytest.mark.parametrize(
    "bad",
    [
        "redis://host",
        "sqlite",
        "file:///x",
        "dynamodb://",
        "dynamodb://table?color=red",
        "dynamodb://table?region=us-east-1&endpoint=http://example.org:8000",
    ],
)
def test_other_transactional_stores_are_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(siltstone.Invalid, match=r"transactional.store"):
        siltstone.open(str(tmp_path / "db"), store_options={"transactional_store": bad})


def test_a_folder_may_be_moved_but_not_copied(tmp_path: Path, records: str) -> None:
    options = {"transactional_store": records}
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))
    with siltstone.open(first, store_options=options) as db:
        db[b"a"] = b"1"
    Path(first).rename(second)
    with siltstone.open(second, store_options=options) as db:
        assert db[b"a"] == b"1"
        db[b"b"] = b"2"
    shutil.copytree(second, third)
    with pytest.raises(siltstone.Conflict, match=r"copy.*second"):
        siltstone.open(third, store_options=options)
    with siltstone.open(second, store_options=options) as db:
        assert db[b"b"] == b"2"


def test_a_backup_of_objects_and_records_is_restored(tmp_path: Path) -> None:
    place, records = tmp_path / "db", tmp_path / "records"
    options = {"transactional_store": f"sqlite://{records}"}
    with siltstone.open(str(place), store_options=options) as db:
        db[b"a"] = b"1"
    shutil.copytree(place, tmp_path / "old")
    shutil.copy(records, tmp_path / "old-records")
    with siltstone.open(str(place), store_options=options) as db:
        db[b"b"] = b"2"
    # Both of one moment.
    shutil.copytree(place, tmp_path / "new")
    shutil.copy(records, tmp_path / "new-records")

    def restore(objects: str, record_file: str) -> dict[bytes, bytes]:
        shutil.rmtree(place)
        shutil.copytree(tmp_path / objects, place)
        shutil.copy(tmp_path / record_file, records)
        with siltstone.open(str(place), store_options=options) as db:
            db[b"c"] = b"3"
        with siltstone.open_reader(str(place), store_options=options) as reader:
            return dict(reader.scan())

    assert restore("old", "old-records") == {b"a": b"1", b"c": b"3"}
    assert restore("new", "new-records") == {b"a": b"1", b"b": b"2", b"c": b"3"}
    # Records of objects that the restored folder does not have, and the other way round.
    assert restore("old", "new-records") == {b"a": b"1", b"c": b"3"}
    assert restore("new", "old-records") == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_a_mistyped_file_of_records_is_not_created(tmp_path: Path) -> None:
    url, mistyped = str(tmp_path / "db"), tmp_path / "rekords"
    options = {"transactional_store": f"sqlite://{tmp_path}/records"}
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    for call in (siltstone.open, siltstone.open_reader, siltstone.admin.manifest):
        with pytest.raises(siltstone.Invalid, match="does not exist"):
            call(url, store_options={"transactional_store": f"sqlite://{mistyped}"})
        assert not mistyped.exists()


def test_reading_an_empty_place_creates_nothing(tmp_path: Path, records: str) -> None:
    with pytest.raises(siltstone.NotFound):
        siltstone.open_reader(str(tmp_path / "db"), store_options={"transactional_store": records})
    assert not (tmp_path / "db").exists()


def test_a_place_that_was_emptied_begins_anew(tmp_path: Path, records: str) -> None:
    url, options = str(tmp_path / "db"), {"transactional_store": records}
    for round in range(3):
        with siltstone.open(url, store_options=options) as db:
            assert list(db.scan()) == []
            db[b"round"] = b"%d" % round
        shutil.rmtree(url)


@contextlib.contextmanager
def locked(records: Path) -> Iterator[None]:
    """Another process has the file's lock: the locks of one process do not exclude each other."""
    hold = (
        "import sqlite3, sys; held = sqlite3.connect(sys.argv[1]);"
        "held.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", hold, str(records)], **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        yield
        other.communicate()


class Proxy:
    """Passes connections to a server on, until it is told to swallow the bytes of those that are
    open, as a device does that has forgotten them."""

    def __init__(self, port: int) -> None:
        self.target, self.open, self.lost = port, list[socket.socket](), set[socket.socket]()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self.open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self.pass_on, args=ends, daemon=True).start()

    def pass_on(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while some := source.recv(1 << 16):
                if source not in self.lost:
                    to.sendall(some)
            if source not in self.lost:
                to.close()

    def forget(self) -> None:
        self.lost |= set(self.open)

    def close(self) -> None:
        self.listener.close()
        for end in self.open:
            end.close()


@pytest.mark.parametrize("kind", ["server", "mysql"])
def test_connections_that_are_silently_lost_are_replaced(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """Before, requests on them had no limit: nothing became durable until the process ended."""
    url = str(request.getfixturevalue(kind))
    port = re.search(r":(\d+)/", url)
    assert port is not None
    with contextlib.closing(Proxy(int(port[1]))) as proxy:
        records = url.replace(f":{port[1]}/", f":{proxy.port}/")
        with siltstone.open(tmp_path / "db", store_options={"transactional_store": records}) as db:
            db.put(b"a", b"1").wait()

            def durable_again() -> float:
                proxy.forget()
                began = time.monotonic()
                db.put(b"b", b"1").wait(PATIENCE)
                return time.monotonic() - began

            for _ in range(2):
                quickest(durable_again, 12)
            db.flush()
        with siltstone.open_reader(
            tmp_path / "db", store_options={"transactional_store": url}
        ) as reader:
            assert dict(reader.scan()) == {b"a": b"1", b"b": b"1"}


def test_a_silent_server_is_named_by_a_short_deadline(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        records = f"postgres://user:secret-word@127.0.0.1:{port}/records"
        with pytest.raises(siltstone.Timeout) as raised:
            siltstone.open(
                tmp_path / "db",
                store_options={"transactional_store": records},
                options={"deadline": 2.0},
            )
    assert f"the transactional store (postgres, 127.0.0.1:{port})" in str(raised.value)
    assert "secret-word" not in str(raised.value)


def test_a_locked_file_of_records_is_named_by_a_short_deadline(tmp_path: Path) -> None:
    # Long enough for the calls that are not locked out, on a machine that stalls for seconds.
    records, options = tmp_path / "records", {"deadline": 8.0}
    store_options = {"transactional_store": f"sqlite://{records}"}
    with siltstone.open(tmp_path / "db", store_options=store_options, options=options) as db:
        db.put(b"a", b"1").wait()
        with locked(records), pytest.raises(siltstone.Timeout) as raised:
            db.put(b"b", b"2").wait()
        assert "the transactional store (sqlite" in str(raised.value)
        db.flush()
        assert db[b"b"] == b"2"


def test_a_lost_namespace_is_told_and_can_be_restored(tmp_path: Path) -> None:
    """As the guide says: the transactional store knows it."""
    url, records = tmp_path / "db", tmp_path / "records"
    options = {"transactional_store": f"sqlite://{records}"}
    with siltstone.open(url, store_options=options) as db:
        db[b"a"] = b"1"
    (url / "two-phase" / "namespace").unlink()
    report = admin.verify(url, store_options=options)
    assert not report.ok
    assert [problem.object for problem in report.problems] == ["two-phase/namespace"]
    with pytest.raises(siltstone.Unsupported, match="A lost namespace"):
        siltstone.open(url, store_options=options)

    with contextlib.closing(sqlite3.connect(records)) as connection:
        select = "SELECT location, namespace FROM siltstone_namespaces"
        [(location, namespace)] = connection.execute(select).fetchall()
    assert location in (str(url), url.as_uri())
    (url / "two-phase" / "namespace").write_text(f"namespace {namespace}\n")
    assert admin.verify(url, store_options=options).ok
    with siltstone.open(url, store_options=options) as db:
        assert db[b"a"] == b"1"


def test_a_clone_has_records_of_its_own(tmp_path: Path, records: str) -> None:
    options = {"transactional_store": records}
    parent, clone = str(tmp_path / "parent"), str(tmp_path / "clone")
    with siltstone.open(parent, store_options=options) as db:
        db[b"a"] = b"1"
    siltstone.clone(clone, parent=parent, store_options=options)
    with siltstone.open(clone, store_options=options) as db:
        db[b"b"] = b"2"
        assert dict(db.scan()) == {b"a": b"1", b"b": b"2"}
    with siltstone.open_reader(parent, store_options=options) as reader:
        assert dict(reader.scan()) == {b"a": b"1"}


def test_the_second_writer_fences_the_first(tmp_path: Path, records: str) -> None:
    url, options = str(tmp_path / "db"), {"transactional_store": records}
    first = siltstone.open(url, store_options=options)
    first[b"a"] = b"1"
    first.flush()
    with siltstone.open(url, store_options=options, take_over=True) as second:
        assert second[b"a"] == b"1"
        with pytest.raises(siltstone.Fenced):
            late(first)
        second[b"b"] = b"2"
        assert second[b"b"] == b"2"
    with pytest.raises(siltstone.Fenced):
        first.close()


def test_writers_that_race_for_a_new_database_find_one(tmp_path: Path, records: str) -> None:
    url, options = str(tmp_path / "db"), {"transactional_store": records}
    opened, failed = [], []

    def open_it() -> None:
        try:
            db = siltstone.open(url, store_options=options, take_over=True)
            opened.append(db.stats().epoch)
        except (siltstone.Fenced, siltstone.Conflict) as error:
            failed.append(error)
            return
        with contextlib.suppress(siltstone.Fenced):
            db.close()

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) + len(failed) == 8
    assert len(set(opened)) == len(opened) >= 1


def test_a_store_that_ignores_conditions_takes_a_transactional_store(
    tmp_path: Path, records: str
) -> None:
    with OverwritingS3() as store:
        options = store.options
        with pytest.raises(siltstone.Unsupported, match=r"transactional.store"):
            siltstone.open("s3://bucket/db", store_options=options)
        options = {**options, "transactional_store": records}
        first = siltstone.open("s3://bucket/db2", store_options=options)
        first[b"a"] = b"1"
        first.flush()
        with siltstone.open("s3://bucket/db2", store_options=options, take_over=True) as second:
            with pytest.raises(siltstone.Fenced):
                late(first)
            second[b"b"] = b"2"
        with pytest.raises(siltstone.Fenced):
            first.close()
        with siltstone.open_reader("s3://bucket/db2", store_options=options) as reader:
            assert dict(reader.scan()) == {b"a": b"1", b"b": b"2"}
        assert admin.verify("s3://bucket/db2", store_options=options).problem_count == 0


@pytest.mark.parametrize("scheme", ["postgres", "mysql", "mariadb"])
def test_no_text_shows_the_password(tmp_path: Path, scheme: str) -> None:
    wrong = f"{scheme}://app:canary-77@127.0.0.1:9/none"
    # Nothing listens there, so the error comes at once and names the server.
    told = r"no connection .*server: 127\.0\.0\.1:9"
    with pytest.raises(siltstone.Unavailable, match=told) as caught:
        siltstone.open(str(tmp_path / "db"), store_options={"transactional_store": wrong})
    assert "canary-77" not in str(caught.value)
    assert "canary-77" not in repr(caught.value)


def test_a_user_without_rights_is_told(
    tmp_path: Path, mysql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the server, on one database, and on a table."""
    for wrong in [mysql.replace("3306@", "77@"), mysql.replace("/siltstone", "/mysql")]:
        with pytest.raises(siltstone.Denied, match="refused the user") as caught:
            siltstone.open(str(tmp_path / "db"), store_options={"transactional_store": wrong})
        assert "canary" not in str(caught.value)


def test_dynamodb_is_found_as_s3_is(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys come from the environment, from a profile, or from the options of an S3 database."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    credentials = tmp_path / "credentials"
    credentials.write_text("[apart]\naws_access_key_id = k\naws_secret_access_key = canary-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    options = {"transactional_store": f"{table}&profile=apart"}
    with siltstone.open(str(tmp_path / "db"), store_options=options) as db:
        db[b"a"] = b"1"
    with pytest.raises(siltstone.Unsupported, match=r"`transactional_store`.*dynamodb"):
        siltstone.open(str(tmp_path / "db"))
    with OverwritingS3() as store:
        options = {**store.options, "transactional_store": table}
        with siltstone.open("s3://bucket/keys", store_options=options) as db:
            db[b"a"] = b"1"
    # Nothing listens there.
    options = {"transactional_store": "dynamodb://none?endpoint=http://127.0.0.1:9&profile=apart"}
    with pytest.raises(siltstone.Unavailable, match=r"no connection .*127\.0\.0\.1:9") as caught:
        siltstone.open(str(tmp_path / "other"), store_options=options)
    assert "canary" not in str(caught.value)


def test_a_table_that_is_gone_is_told(
    tmp_path: Path, table: str, keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = str(tmp_path / "db"), {"transactional_store": table}
    siltstone.open(url, store_options=options).close()
    options = {"transactional_store": table.replace("://siltstone", "://elsewhere")}
    with pytest.raises(siltstone.Invalid, match=r"table .*does not exist.*elsewhere"):
        siltstone.open(url, store_options=options)


def test_a_file_of_records_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    options = {"transactional_store": f"sqlite://{tmp_path}/none/records.db"}
    with pytest.raises(siltstone.Invalid, match=r"no connection .*none/records\.db"):
        siltstone.open(str(tmp_path / "db"), store_options=options)


@pytest.mark.slow
def test_kills_of_every_role_lose_nothing(
    tmp_path: Path,
    records: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SILTSTONE_TRANSACTIONAL_STORE", records)
    if records.startswith("dynamodb:"):
        # The emulator serves one request at a time: a killed writer has had the time to write.
        monkeypatch.setenv("SILTSTONE_KILL_PAUSE", "0.3")
    roles = killed("kills_for_tests.py", tmp_path / "dbs", KILLS)
    assert sum(map(int, roles.values())) >= KILLS
    told = capsys.readouterr().out
    print(told, end="")
    # In a few kills there may be no writer that has begun.
    assert KILLS < 100 or re.search(r"; [1-9]\d* writes", told), told


def test_a_file_that_is_no_database_is_told_at_once(tmp_path: Path) -> None:
    records = tmp_path / "records.db"
    records.write_bytes(b"not a database of SQLite, but long enough for its head" * 100)
    options = {"transactional_store": f"sqlite://{records}"}
    begun = time.monotonic()
    with pytest.raises(siltstone.Invalid, match=r"names no database.*file is not a database"):
        siltstone.open(tmp_path / "db", store_options=options)
    assert time.monotonic() - begun < 10
