"""A full disk and a read-only folder, with real processes: each failure ends within its deadline,
with the system's own error text, and loses no data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone

# A disk of 48 MB in a mount of the program's own, which ends with the program.
SMALL_DISK = 'mount -t tmpfs -o size=48m none "$0" && exec "$@"'
PROGRAM = Path(__file__).with_name("full_disk_for_tests.py")
# The superuser without the capabilities to ignore permissions.
WITHOUT_RIGHTS = ["--bounding-set", "-dac_override,-dac_read_search"]
WITHOUT_RIGHTS += ["--inh-caps", "-dac_override,-dac_read_search"]


def in_small_disk(folder: Path, *command: str) -> list[str]:
    own = ["-m"] if os.geteuid() == 0 else ["-rm"]
    return ["unshare", *own, "sh", "-c", SMALL_DISK, str(folder), *command]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder for mounting a disk."""
    if shutil.which("unshare") is None:
        pytest.skip("a small disk needs unshare (util-linux), which is not here")
    tried = subprocess.run(
        in_small_disk(tmp_path, "true"), check=False, capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {tried.stderr.strip()}")
    return tmp_path


@pytest.mark.parametrize(
    "scenario",
    [
        "a_writer_says_why_and_goes_on",
        "a_close_says_why_and_loses_nothing",
        "a_killed_writer_has_lost_nothing",
        "compactors_say_why_and_end",
        "a_load_gives_its_scratch_folder_back",
        "readers_read_and_tools_say_why",
    ],
)
def test_a_full_disk(disk: Path, scenario: str) -> None:
    command = in_small_disk(disk, sys.executable, str(PROGRAM), scenario, str(disk))
    # The timeout only ends a test that would never end.
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def without_rights(*command: str) -> list[str]:
    """A command without the right to write to a folder of mode 0555."""
    if os.geteuid():
        return list(command)
    if shutil.which("setpriv") is None:
        pytest.skip("the superuser may write everywhere, and setpriv (util-linux) is not here")
    return ["setpriv", *WITHOUT_RIGHTS, *command]


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A database that can be read, but not written."""
    path = tmp_path / "db"
    with siltstone.open(path, options={"l0_sst_size_bytes": 4096}) as db:
        for number in range(300):
            db[b"%d" % number] = bytes(100)
    for place, _, _ in os.walk(path):
        Path(place).chmod(0o555)
    yield path
    for place, _, _ in os.walk(path):
        Path(place).chmod(0o755)


@pytest.mark.parametrize("command", ["compact", "run-compactor", "put"])
def test_a_folder_that_may_not_be_written(unwritable: Path, command: str) -> None:
    words = [command, *(["key", "value"] if command == "put" else [])]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "siltstone.cli", "--path", str(unwritable), *arguments]
        # The timeout only ends a test that would never end.
        return subprocess.run(
            without_rights(*program), check=False, capture_output=True, text=True, timeout=60
        )

    # The deadline is half a minute, but a denied write must fail without a wait.
    ended = run(*words)
    assert ended.returncode == 1, ended
    assert "Permission denied" in ended.stderr, ended
    # Reading needs only read permission.
    read = run("verify")
    assert read.returncode == 0, read
