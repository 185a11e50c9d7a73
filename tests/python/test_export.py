"""Exports, mirrors and imports."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import siltstone
from siltstone import _export
from siltstone.cli import main

admin = siltstone.admin


@pytest.fixture(params=["folder", "memory"])
def places(request: pytest.FixtureRequest, tmp_path: Path, memory_url: str) -> list[str]:
    """Places for new databases."""
    root = str(tmp_path) if request.param == "folder" else memory_url
    return [f"{root}/{name}" for name in ("source", "mirror", "third")]


def filled(url: str) -> dict[bytes, bytes]:
    """Rows in tables and in the log."""
    with siltstone.open(url) as db:
        for row in range(50):
            db[b"table%02d" % row] = b"value"
        db.flush(memtable=True)
        db[b"log"] = b"value"
        db.delete_range(b"table40", b"table45")
    return rows(url)


def rows(url: str) -> dict[bytes, bytes]:
    with siltstone.open_reader(url) as reader:
        return dict(reader.items())


def test_a_mirror_opens_by_itself(tmp_path: Path) -> None:
    source, mirror = tmp_path / "source", tmp_path / "mirror"
    expected = filled(str(source))
    report = admin.export(source, mirror)
    assert report.tables_moved > 0
    assert report.tables_shared == 0
    assert report.bytes > 0
    shutil.rmtree(source)
    shutil.move(mirror, tmp_path / "moved")
    assert rows(str(tmp_path / "moved")) == expected
    assert admin.verify(tmp_path / "moved").ok


def test_a_second_export_moves_what_is_new(places: list[str]) -> None:
    source, mirror, _ = places
    filled(source)
    first = admin.export(source, mirror)
    again = admin.export(source, mirror)
    assert (again.tables_moved, again.bytes) == (0, 0)
    assert again.tables_shared == first.tables_moved
    with siltstone.open(source) as db:
        db.put(b"new", b"row").wait()
        told: list[tuple[int, int]] = []
        admin.export(source, mirror, on_progress=lambda done, total: told.append((done, total)))
        assert all(done <= total for done, total in told)
    assert rows(mirror) == rows(source)
    admin.gc(mirror, min_age=0)
    assert admin.verify(mirror).ok
    assert not admin.verify(mirror).orphans
    assert rows(mirror) == rows(source)


def test_a_checkpoint_is_exported_by_any_name(places: list[str]) -> None:
    source, mirror, _ = places
    expected = filled(source)
    kept = admin.create_checkpoint(source, name="kept")
    with siltstone.open(source) as db:
        db[b"later"] = b"row"
    for spelling in (kept, str(kept.id), "kept"):
        admin.export(source, mirror, checkpoint=spelling)
        assert rows(mirror) == expected
    with pytest.raises(siltstone.Expired):
        admin.export(source, mirror, checkpoint="unknown")


def test_a_mirror_is_written_to_once_it_is_promoted(places: list[str]) -> None:
    source, mirror, _ = places
    expected = filled(source)
    admin.export(source, mirror)
    with pytest.raises(siltstone.Conflict, match="promote"):
        siltstone.open(mirror)
    with pytest.raises(siltstone.Conflict, match="mirror"):
        admin.compact(mirror)
    assert admin.manifest(mirror)["mirror_of"].endswith("source")
    admin.promote(mirror)
    assert admin.manifest(mirror)["mirror_of"] is None
    with siltstone.open(mirror) as db:
        db[b"new"] = b"row"
        db.compact()
    assert rows(mirror) == expected | {b"new": b"row"}
    with pytest.raises(siltstone.Conflict, match="promoted"):
        admin.export(source, mirror)
    with pytest.raises(siltstone.Conflict, match=r"normal database.* needs none; check the path"):
        admin.promote(source)
    with pytest.raises(siltstone.Conflict, match="an import creates a new database"):
        admin.import_(source, mirror)
    with pytest.raises(siltstone.NotFound):
        admin.promote(source + "-nothing")


def test_an_import_is_a_database_of_its_own(places: list[str]) -> None:
    source, mirror, third = places
    expected = filled(source)
    admin.export(source, mirror)
    report = admin.import_(third, mirror)
    assert report.tables_moved > 0
    with siltstone.open(third) as db:
        db[b"new"] = b"row"
    assert rows(mirror) == expected
    with pytest.raises(siltstone.Conflict):
        admin.import_(third, mirror)
    with pytest.raises(siltstone.Conflict, match="exports keep"):
        admin.import_(mirror, source)


def test_from_one_kind_of_store_to_another(tmp_path: Path, memory_url: str) -> None:
    expected = filled(memory_url)
    admin.export(memory_url, tmp_path / "folder")
    assert rows(str(tmp_path / "folder")) == expected
    admin.import_(memory_url + "-back", tmp_path / "folder")
    assert rows(memory_url + "-back") == expected


def test_awaited(places: list[str]) -> None:
    source, mirror, third = places
    expected = filled(source)

    async def both() -> None:
        report = await siltstone.aio.export(source, mirror)
        assert report.tables_moved > 0
        await siltstone.aio.import_(third, mirror)

    asyncio.run(both())
    assert rows(mirror) == rows(third) == expected


def test_a_killed_export_goes_on(tmp_path: Path) -> None:
    source, mirror = tmp_path / "source", tmp_path / "mirror"
    small = {"l0_sst_size_bytes": 256 << 10, "embedded_compactor": False}
    with siltstone.open(source, options=small) as db:
        for row in range(2000):
            db[b"row%04d" % row] = bytes([row % 251]) * 1000
    program = "import sys, siltstone; siltstone.admin.export(*sys.argv[1:])"
    exporter = subprocess.Popen([sys.executable, "-c", program, str(source), str(mirror)])
    try:
        # The export is killed during its work, or just after it: both can be continued.
        while exporter.poll() is None and not list(mirror.glob("ingest/*/*.sst")):
            time.sleep(0.001)
    finally:
        exporter.kill()
        exporter.wait()
    again = admin.export(source, mirror)
    assert rows(str(mirror)) == rows(str(source))
    assert again.bytes < sum(table.stat().st_size for table in mirror.glob("ingest/*/*.sst"))
    admin.gc(mirror, min_age=0)
    assert admin.verify(mirror).ok
    assert not admin.verify(mirror).orphans


def test_one_kind_of_store_has_its_options_once() -> None:
    region = {"region": "here"}
    both = _export._places("s3://one/a", region, "s3a://two/b", None)
    assert both == (("s3://one/a", region), ("s3a://two/b", region))
    assert _export._places("s3://one/a", region, "gs://two/b", None)[1][1] == {}
    assert _export._places("s3://one/a", region, "folder", None)[1][1] == {}
    own = {"region": "there"}
    assert _export._places("s3://one/a", region, "s3://two/b", own)[1][1] == own


def test_the_report_is_short() -> None:
    report = admin.ExportReport(3, 4, 5 << 20)
    assert "tables_moved=3" in repr(report)
    assert report.to_dict() == {"tables_moved": 3, "tables_shared": 4, "bytes": 5 << 20}


def test_the_command_line(tmp_path: Path) -> None:
    source, mirror, third = (str(tmp_path / name) for name in ("source", "mirror", "third"))
    expected = filled(source)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    moved = json.loads(run("--path", source, "export", mirror, "--json"))
    assert moved["tables_moved"] > 0
    assert "tables_shared" in run("--path", source, "export", mirror)
    assert json.loads(run("--path", third, "import", mirror, "--json"))["bytes"] == moved["bytes"]
    assert rows(third) == expected
    assert json.loads(run("--path", mirror, "promote", "--json")) == {"promoted": mirror}
    refused = CliRunner().invoke(main, ["--path", source, "export", mirror])
    assert refused.exit_code != 0
    assert "promoted" in refused.stderr
