"""The probe of a store: stores that are whole pass, and faults have a name and a remedy."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import re
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
from pace_for_tests import PATIENCE
from siltstone.admin import StoreProperty, StoreReport, probe
from siltstone.cli import main

SERVE_S3 = Path(__file__).resolve().parents[1] / "support" / "serve_moto.py"
MIB = 1 << 20
QUICK = {"rounds": 6, "largest_object": MIB}
NAMES = [
    "read_after_write",
    "list_after_write",
    "list_order",
    "create_twice",
    "racing_creates",
    "range_read",
    "range_past_end",
    "delete_then_create",
    "copy",
    "clock",
    "large_objects",
]


def results(report: StoreReport) -> dict[str, str]:
    return {name: one.result for name, one in report.properties.items()}


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@pytest.fixture
def moto():
    """The endpoint of a server on this machine, with a bucket."""
    pytest.importorskip("moto.server")
    server = subprocess.Popen(
        [sys.executable, str(SERVE_S3)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdin is not None
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    made = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
    made.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4")
    with urllib.request.urlopen(made):
        pass
    yield endpoint
    server.stdin.close()
    server.wait(timeout=PATIENCE)
    server.stdout.close()


def options(endpoint: str) -> dict[str, str]:
    keys = {"access_key_id": "x", "secret_access_key": "canary-secret"}
    return {"endpoint": endpoint, **keys, "region": "us-east-1", "allow_http": "true"}


def stored(endpoint: str) -> str:
    """The listing of the bucket."""
    asked = urllib.request.Request(f"{endpoint}/bucket?list-type=2")
    asked.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4")
    with urllib.request.urlopen(asked) as answer:
        return answer.read().decode()


@pytest.fixture
def unconditional(moto: str):
    """The endpoint of a proxy that drops the condition of creates."""
    with proxy(moto, drop="if-none-match") as endpoint:
        yield endpoint


@pytest.fixture
def unordered(moto: str):
    """The endpoint of a proxy that turns listings around."""
    with proxy(moto, turn=True) as endpoint:
        yield endpoint


def turned(listing: bytes) -> bytes:
    """The listing with its objects in the opposite order."""
    objects = re.findall(rb"<Contents>.*?</Contents>", listing, re.DOTALL)
    parts = iter(reversed(objects))
    return re.sub(rb"<Contents>.*?</Contents>", lambda _: next(parts), listing, flags=re.DOTALL)


@contextlib.contextmanager
def proxy(moto: str, *, drop: str = "", turn: bool = False):
    """A server before the other one, which spoils requests or answers."""
    target = urllib.parse.urlsplit(moto).netloc

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            dropped = {drop, "host", "connection", "accept-encoding"}
            kept = {n: v for n, v in self.headers.items() if n.lower() not in dropped}
            there = http.client.HTTPConnection(target)
            there.request(self.command, self.path, body, kept)
            answer = there.getresponse()
            data = answer.read()
            there.close()
            data = turned(data) if turn else data
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"connection", "transfer-encoding", "date", "server"}:
                    self.send_header(name, value)
            if self.command != "HEAD" and answer.getheader("content-length") is None:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Writes nothing to the output of the tests."""

    for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
        setattr(Proxy, f"do_{method}", Proxy.forward)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_local_folder_passes_and_stays_empty(url: str) -> None:
    report = probe(url, **QUICK)
    assert report.ok
    assert list(report.properties) == NAMES
    assert {name for name, one in results(report).items() if one != "passed"} == {"copy"}
    assert report.store == f"file://{url}"
    assert report.largest_object == MIB
    assert report.left == ()
    assert report.requests > 100
    assert abs(report.clock_offset) <= 2 + report.clock_precision
    assert {"create", "get", "list", "delete"} <= set(report.latency)
    assert all(0 < seconds < 60 for seconds in report.latency.values())
    assert files(Path(url)) == []


def test_memory_passes(memory_url: str) -> None:
    report = probe(memory_url, **QUICK)
    assert report.ok
    assert results(report)["racing_creates"] == "passed"
    assert "6 of 6 rounds" in report.properties["racing_creates"].reason


def test_s3_passes_and_stays_empty(moto: str) -> None:
    report = probe("s3://bucket/some/db", **QUICK, store_options=options(moto))
    assert report.ok, report
    assert set(results(report).values()) == {"passed"}, report.properties
    assert report.store == "s3://bucket/some/db"
    assert "copy" in report.latency
    assert "<Key>" not in stored(moto)
    assert "canary" not in repr(report) + json.dumps(report.to_dict())


def test_an_upload_in_parts(moto: str) -> None:
    report = probe("s3://bucket", rounds=1, largest_object=17 * MIB, store_options=options(moto))
    assert report.properties["large_objects"].result == "passed", report.properties
    assert report.largest_object == 17 * MIB
    assert "<Key>" not in stored(moto)


def test_a_store_that_ignores_conditions_fails(moto: str, unconditional: str) -> None:
    report = probe("s3://bucket/db", **QUICK, store_options=options(unconditional))
    assert not report.ok
    found = results(report)
    assert {name for name, one in found.items() if one == "failed"} == {
        "create_twice",
        "racing_creates",
    }
    one = report.properties["create_twice"]
    assert one.needed
    assert "overwrote" in one.reason
    assert "another bucket" in one.remedy
    assert "conditional writes" in str(one)
    assert repr(report).startswith(
        "<siltstone.admin.StoreReport create_twice failed, racing_creates failed, store=s3://bucket"
    )
    assert "<Key>" not in stored(moto)


def test_the_order_of_listings_is_told_and_not_needed(unordered: str) -> None:
    report = probe("s3://bucket/db", **QUICK, store_options=options(unordered))
    assert report.ok, report.properties
    one = report.properties["list_order"]
    assert (one.result, one.needed) == ("failed", False)
    assert "sorts listings itself" in one.remedy


def test_the_command_warns_of_what_is_not_needed(url: str, monkeypatch) -> None:
    report = probe(url, **QUICK)
    clock = dataclasses.replace(report.properties["clock"], result="failed")
    properties = {**report.properties, "clock": clock}
    spoilt = dataclasses.replace(report, properties=properties, left=("probe/a", "probe/b"))
    monkeypatch.setattr(siltstone.admin, "probe", lambda *_, **__: spoilt)
    done = CliRunner().invoke(main, ["probe", url])
    assert done.exit_code == 0
    first, second = done.stderr.splitlines()
    assert first.startswith("Warning: clock failed: ")
    assert second == "Warning: 2 objects could not be deleted; the first is probe/a"


def test_the_command_names_the_property_and_the_ways_out(moto: str, unconditional: str) -> None:
    given = [f"--store-option={name}={value}" for name, value in options(unconditional).items()]
    command = [*given, "probe", "s3://bucket/db", "--rounds", "4", "--largest-object", "1MiB"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert [line.split()[1] for line in lines] == ["create_twice", "racing_creates"]
    for line in lines:
        assert "use another bucket, or a store with conditional writes" in line
    assert "create_twice\tfailed\n" in done.stdout
    assert "read_after_write\tpassed\n" in done.stdout
    done = CliRunner().invoke(main, [*command, "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert told["properties"]["create_twice"]["result"] == "failed"
    assert "canary" not in done.stdout + done.stderr


def test_the_command_takes_the_place_both_ways(url: str) -> None:
    for place in (["probe", url], ["--path", url, "probe"]):
        done = CliRunner().invoke(
            main, [*place, "--rounds", "2", "--largest-object", "1MiB", "--json"]
        )
        assert (done.exit_code, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        assert told["ok"] is True
        assert told["left"] == []
        assert set(told) == {"ok", *(field.name for field in dataclasses.fields(StoreReport))}
    done = CliRunner().invoke(main, ["--path", url, "probe", url])
    assert done.exit_code == 2
    assert "not both" in done.stderr
    done = CliRunner().invoke(main, ["probe"])
    assert done.exit_code == 2
    assert "--path" in done.stderr


def test_a_database_there_is_not_touched(url: str) -> None:
    with siltstone.open(url) as db:
        db[b"a"] = b"1"
        # Otherwise the object of this write is created while the probe is at work.
        db.flush()
        before = files(Path(url))
        assert probe(url, **QUICK).ok
        assert files(Path(url)) == before
        db[b"b"] = b"2"
    with siltstone.open(url) as db:
        assert list(db.items()) == [(b"a", b"1"), (b"b", b"2")]
    assert siltstone.admin.verify(url).ok


def test_two_probes_at_one_place_do_not_meet(url: str) -> None:
    reports: list[StoreReport] = []

    def run() -> None:
        reports.append(probe(url, **QUICK))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [report.ok for report in reports] == [True] * 3, reports
    assert files(Path(url)) == []


def test_a_folder_that_refuses_writes_is_an_error(tmp_path: Path, moto: str) -> None:
    with pytest.raises(siltstone.NotFound):
        probe("s3://absent/db", **QUICK, store_options=options(moto))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(siltstone.Error):
        probe(tmp_path / "file" / "db", **QUICK)


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"rounds": -1}, {"largest_object": 0}, {"largest_object": 1 << 40}]
)
def test_arguments_have_bounds(memory_url: str, wrong: dict[str, int]) -> None:
    with pytest.raises(siltstone.Invalid, match=next(iter(wrong))):
        probe(memory_url, **wrong)


def test_progress_is_told(moto: str) -> None:
    told: list[tuple[int, int]] = []
    probe(
        "s3://bucket/db",
        rounds=30,
        largest_object=MIB,
        store_options=options(moto),
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told
    assert {total for _, total in told} == {40}
    assert told == sorted(told)


def test_a_report_is_frozen_and_shown(memory_url: str) -> None:
    report = probe(memory_url, **QUICK)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.store = "x"
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.properties["clock"].result = "failed"
    assert repr(report).startswith("<siltstone.admin.StoreReport ok, store=memory://")
    assert "racing_creates" in report._repr_html_()
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True
    skipped = StoreProperty("range_read", "skipped", True, "no answer", "ask again")
    assert str(skipped) == "range_read skipped: no answer; ask again"
    unproven = dataclasses.replace(report, properties={**report.properties, "range_read": skipped})
    assert not unproven.ok
