"""A MariaDB server on loopback, as the current user, stopped at the end of its block.

The server is the system's, or that of a Debian package. The package is fetched and unpacked into a
cache folder, which needs neither root nor an installation: ``siltstone/mariadb`` of
``$XDG_CACHE_HOME``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pace_for_tests import PATIENCE
from postgres_for_tests import on_a_free_port

PACKAGE = "mariadb-server-core"
MISSING = "no MariaDB on this machine: apt-get install mariadb-server-core"
PASSWORD = "canary-3306"


def cache() -> Path:
    """The folder of the unpacked package."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "siltstone" / "mariadb"


@functools.cache
def program() -> Path | None:
    """The server, or ``None`` if it is not here and cannot be fetched."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found:
        return Path(found).resolve()
    unpacked = cache() / "usr" / "sbin" / "mariadbd"
    if not unpacked.exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            fetch()
    return unpacked if unpacked.exists() else None


def fetch() -> None:
    """Unpacks the Debian package, and those of its libraries that are not installed."""
    cache().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache().parent) as folder:
        place = Path(folder)

        def download(name: str) -> Path:
            command = ["apt-get", "download", "--quiet", name]
            subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
            return next(place.glob(f"{name}_*.deb"))

        server = download(PACKAGE)
        command = ["dpkg-deb", "--field", str(server), "Depends"]
        depends = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        libraries = re.findall(r"(?:^|, )(lib[\w.+-]+)", depends)
        missing = [name for name in libraries if not is_installed(name)]
        for archive in [server, *map(download, missing)]:
            subprocess.run(["dpkg-deb", "--extract", archive, place / "made"], check=True)
        shutil.rmtree(cache(), ignore_errors=True)
        (place / "made").rename(cache())


def is_installed(package: str) -> bool:
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return told == "installed"


def environment() -> dict[str, str]:
    """The environment of the server: libraries of the cache folder are found."""
    folders = {str(path.parent) for path in cache().glob("**/*.so*")}
    known = os.environ.get("LD_LIBRARY_PATH")
    joined = ":".join([*sorted(folders), *([known] if known else [])])
    return {**os.environ, "LD_LIBRARY_PATH": joined} if joined else dict(os.environ)


def version() -> str:
    server = program()
    assert server is not None, MISSING
    command = [server, "--version"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    found = re.search(r"Ver (\S+?)-MariaDB", told.stdout)
    return found[1] if found else "unknown version"


# A user whose rights end at one database.
SETUP = f"""\
CREATE DATABASE siltstone;
CREATE USER 'siltstone'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON siltstone.* TO 'siltstone'@'%';
"""
# Settings under which nothing is committed by itself, and lengths are not checked.
CARELESS = ["--autocommit=0", "--transaction-isolation=READ-UNCOMMITTED", "--sql-mode="]


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """The URL of an empty database, with a password."""
    server = program()
    assert server is not None, MISSING
    data = Path(tempfile.mkdtemp(prefix="siltstone-mariadb-"))
    shares = [server.parents[1] / "share" / name for name in ("mariadb", "mysql")]
    share = next(path for path in shares if (path / "charsets").exists())
    user = ["--user=root"] if os.geteuid() == 0 else []
    command = [server, "--no-defaults", *user, f"--datadir={data / 'data'}"]
    command += [f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
    command += [*CARELESS, f"--pid-file={data / 'pid'}", f"--socket={data / 'socket'}"]
    try:
        (data / "data").mkdir()
        (data / "setup.sql").write_text(SETUP)
        names = sorted(share.glob("m*_system_tables*.sql"))
        tables = "".join(path.read_text() for path in names)
        script = f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}"
        bootstrap = [*command, "--bootstrap", "--skip-networking"]
        made = subprocess.run(
            bootstrap, input=script.encode(), env=environment(), capture_output=True, check=False
        )
        assert made.returncode == 0, made.stderr.decode(errors="replace")

        def serve(port: int) -> subprocess.Popen[bytes]:
            listen = ["--bind-address=127.0.0.1", f"--port={port}"]
            listen += [f"--init-file={data}/setup.sql"]
            with (data / "log").open("wb") as log:
                return subprocess.Popen(
                    [*command, *listen], env=environment(), stdout=log, stderr=log
                )

        def answers(port: int) -> bool:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port)) as to,
            ):
                # It greets once it has run the file of statements.
                to.settimeout(1.0)
                return to.recv(1) != b""
            return False

        running, port = on_a_free_port(serve, answers, data / "log")
        try:
            yield f"mysql://siltstone:{PASSWORD}@127.0.0.1:{port}/siltstone"
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(timeout=PATIENCE / 4)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    # For tests in Rust: print the URL, and serve until standard input closes.
    import sys

    with mariadb() as url:
        print(url, flush=True)
        sys.stdin.buffer.read()
