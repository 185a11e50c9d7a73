"""Checks the Linux wheels in a folder, and tries those that run on this machine.

    check.py FOLDER

A wheel must work on every Python from 3.11 and every distribution from 2014 on (glibc 2.17), and
include all that it needs. It is installed into an empty environment, without a compiler on the
PATH, and a database is written and read with it, from Python and from the command line.

A wheel for another machine is inspected. It is also tried if a command that runs Python for that
machine is given, such as SILTSTONE_RUN_AARCH64='qemu-aarch64-static -L root root/usr/bin/python3'.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import venv
import zipfile
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from size import refusal

MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
NAME = re.compile(r"siltstone-[^-]+-cp311-abi3-manylinux2014_(\w+?)\.manylinux_2_17_\1\.whl")
GLIBC = (2, 17)
# Libraries of every glibc system. libpython, OpenSSL and a C++ library are not among them.
LIBRARIES = {
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
}

TRIAL = """
import pathlib, sys, siltstone
place = pathlib.Path(sys.argv[1]) / "db"
with siltstone.open(place) as db:
    db.put(b"key", b"value").wait()
    db.put_many([b"%05d" % i for i in range(1000)], [b"row"] * 1000)
with siltstone.open(place, take_over=False) as db:
    assert db[b"key"] == b"value"
    assert sum(1 for _ in db.scan()) == 1001
    assert db.get_many([b"00007", b"absent"]) == [b"row", None]
with siltstone.open_reader(place) as reader:
    assert reader.get(b"00999") == b"row"
print(siltstone.__version__)
"""


class Refused(Exception):
    """A wheel does not meet a requirement."""


def main(folder: Path) -> None:
    """Checks all wheels of the folder: one for each machine."""
    wheels = {machine_of(wheel): wheel for wheel in sorted(folder.glob("*.whl"))}
    if set(wheels) != set(MACHINES):
        raise Refused(f"wheels for {sorted(MACHINES)} were expected, not for {sorted(wheels)}")
    for machine, wheel in wheels.items():
        if (too_large := refusal(wheel)) is not None:
            raise Refused(too_large)
        newest = inspected(wheel, machine)
        size = wheel.stat().st_size / 1e6
        print(f"{wheel.name}: {size:.1f} MB, glibc {newest[0]}.{newest[1]}; ", end="")
        print(tried(wheel, machine))


def machine_of(wheel: Path) -> str:
    """The machine in the name of the wheel."""
    found = NAME.fullmatch(wheel.name)
    if found is None:
        raise Refused(f"{wheel.name} is not named as a wheel for every Python and every glibc")
    return found.group(1)


def inspected(wheel: Path, machine: str) -> tuple[int, ...]:
    """The newest glibc version that the extension requires."""
    with zipfile.ZipFile(wheel) as files:
        extensions = [name for name in files.namelist() if ".so" in name]
        if extensions != ["siltstone/_native.abi3.so"]:
            raise Refused(f"{wheel.name} holds the libraries {extensions}")
        elf = ELFFile(BytesIO(files.read(extensions[0])))
    if elf["e_machine"] != MACHINES[machine]:
        raise Refused(f"{wheel.name} holds an extension for {elf['e_machine']}")
    needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
    if not needed <= LIBRARIES:
        raise Refused(f"{wheel.name} needs {sorted(needed - LIBRARIES)}")
    versions = {
        tuple(map(int, version.name.removeprefix("GLIBC_").split(".")))
        for _, asked in elf.get_section_by_name(".gnu.version_r").iter_versions()
        for version in asked
        if version.name.startswith("GLIBC_")
    }
    newest = max(versions)
    if newest[:2] > GLIBC:
        raise Refused(f"{wheel.name} needs glibc {newest}")
    return newest


def tried(wheel: Path, machine: str) -> str:
    """Uses the wheel if possible. Returns a description of what was done."""
    with tempfile.TemporaryDirectory(prefix="siltstone-wheel-") as name:
        scratch = Path(name)
        if machine == platform.machine():
            return installed(wheel, scratch)
        foreign = os.environ.get(f"SILTSTONE_RUN_{machine.upper()}")
        if foreign is None:
            return f"inspected, not run: this machine is {platform.machine()}"
        with zipfile.ZipFile(wheel) as files:
            files.extractall(scratch / "unpacked")
        command = [*shlex.split(foreign), "-c", TRIAL, str(scratch)]
        run(command, PYTHONPATH=str(scratch / "unpacked"))
        return f"unpacked and tried by {Path(command[0]).name}"


def installed(wheel: Path, scratch: Path) -> str:
    """Installs the wheel into an empty environment and uses it."""
    venv.create(scratch / "venv", with_pip=True)
    python, command = (str(scratch / "venv" / "bin" / name) for name in ("python", "siltstone"))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-index", "--no-deps", "--find-links", str(wheel.parent), "siltstone"])
    # Its dependencies are pure Python: they come from the registry and are never built.
    run([*pip, "--only-binary", ":all:", "siltstone"])
    version = run([python, "-c", TRIAL, str(scratch)]).strip()
    place = str(scratch / "db")
    if run([command, "--path", place, "get", "key"]).strip() != "value":
        raise Refused("the command line answers something else")
    run([command, "--path", place, "put", "--take-over", "key", "again"])
    return f"{version} installed without a compiler and tried"


def run(command: list[str], **environment: str) -> str:
    """The output of the command, which finds no other program on its PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        env={**kept, "PATH": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(f"{shlex.join(command[:8])} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Refused as refused:
        sys.exit(f"check.py: {refused}")
