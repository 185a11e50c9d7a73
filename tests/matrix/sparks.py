"""Runs the Spark tests with several versions of Spark, one after the other.

    sparks.py [--keep] [--folder FOLDER] WHEEL [NAME …]

Each name is a minor version, "newest", or "connect": the newest version through Spark Connect. Each
version gets its own virtual environment with the wheel in it, which is removed afterwards unless
`--keep` is given. Tests skip the features that a version lacks, with a reason; all reasons are
printed. The program ends with a table, and with a failure status if any test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "tests" / "python").glob("test_spark*.py"))


@dataclass(frozen=True)
class Spark:
    """The installed packages, and the way to make a session."""

    packages: tuple[str, ...]
    connect: bool = False
    options: tuple[str, ...] = ()
    """Options of pytest."""


# Older versions of Spark use features that newer Pythons and libraries will drop, and leave sockets
# to the garbage collector. That is for Spark to fix.
WARNINGS = (
    "DeprecationWarning",
    "FutureWarning",
    "ResourceWarning",
    "pytest.PytestUnraisableExceptionWarning",
)
OLDER = tuple(part for name in WARNINGS for part in ("-W", f"ignore::{name}"))
# The Arrow versions from about the time of each release, which its users have.
SPARKS = {
    "3.5": Spark(("pyspark==3.5.*", "pyarrow>=15,<18", "pandas<2.3", "numpy<2"), options=OLDER),
    "4.0": Spark(("pyspark==4.0.*", "pyarrow>=18,<20"), options=OLDER),
    "4.1": Spark(("pyspark==4.1.*",), options=OLDER),
    "newest": Spark(("pyspark",)),
    "connect": Spark(("pyspark[connect]",), connect=True, options=OLDER),
}
COMMON = ("hypothesis>=6.100", "moto[server]>=5", "pytest>=8")


def main() -> int:
    """Runs the versions as the module says. Returns the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true")
    arguments.add_argument("--folder", type=Path, default=ROOT / "target" / "spark-matrix")
    arguments.add_argument("wheel", type=Path)
    arguments.add_argument("names", nargs="*", choices=[*SPARKS, []])
    given = arguments.parse_args()
    told = {}
    for name in given.names or SPARKS:
        print(f"--- {name}", flush=True)
        told[name] = tried(SPARKS[name], given.folder / name, given.wheel.resolve(), given.keep)
    print("---")
    for name, (good, line) in told.items():
        print(f"{name:8} {line}{'' if good else '  FAILED'}")
    return 0 if all(good for good, _ in told.values()) else 1


def tried(spark: Spark, place: Path, wheel: Path, keep: bool) -> tuple[bool, str]:
    """Whether the tests passed, and a line about them."""
    python = place / "bin" / "python"
    if not (place / ".made").exists():
        venv.create(place, clear=True, with_pip=True)
        install(python, f"{wheel}[spark]", *spark.packages, *COMMON)
        (place / ".made").touch()
    # Without this, an installed wheel of the same version would stay.
    install(python, "--force-reinstall", "--no-deps", str(wheel))
    found = said(python, "import pyspark, pyarrow; print(pyspark.__version__, pyarrow.__version__)")
    environment = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("SILTSTONE_SPARK_CONNECT", None)
    if spark.connect:
        environment["SILTSTONE_SPARK_CONNECT"] = "1"
    done = subprocess.Popen(
        [python, "-m", "pytest", "-p", "no:cacheprovider", *spark.options, *map(str, TESTS)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    last = ""
    for line in done.stdout or ():
        print(line, end="", flush=True)
        last = line if re.search(r"\d+ (passed|failed|skipped|error)", line) else last
    good = done.wait() == 0
    if not keep:
        shutil.rmtree(place)
    version, arrow = found.split()
    return good, f"Spark {version}, pyarrow {arrow}: {last.strip('= ').strip()}"


def install(python: Path, *packages: str) -> None:
    """Installs packages with pip, quietly."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *packages], check=True)


def said(python: Path, program: str) -> str:
    """The output of a program."""
    return subprocess.run(
        [python, "-c", program], check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
