"""A PostgreSQL server on loopback, as an unprivileged user, stopped at the end of its block."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pace_for_tests import PATIENCE, until


def programs() -> Path | None:
    """The folder with ``initdb`` and ``postgres``: the system's, or that of the package
    ``pgserver``."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    package = importlib.util.find_spec("pgserver")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "pginstall" / "bin"


def on_a_free_port(
    serve: Callable[[int], subprocess.Popen[bytes]], answers: Callable[[int], bool], log: Path
) -> tuple[subprocess.Popen[bytes], int]:
    """A server and its port. If another process takes a port between its choice and its use, the
    server ends, and is started on another port."""
    for _ in range(5):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        server = serve(port)
        try:
            until(lambda server=server, port=port: server.poll() is not None or answers(port))
        except BaseException:
            server.kill()
            raise
        if server.poll() is None:
            return server, port
    raise AssertionError(log.read_text())


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database, with a password."""
    folder = programs()
    assert folder is not None, "no PostgreSQL: install its package, or pgserver from PyPI"
    data = Path(tempfile.mkdtemp(prefix="siltstone-postgres-"))
    user = None
    if os.geteuid() == 0:
        # The server refuses to run as root.
        user = "daemon"
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
    password = data / "password"
    password.write_text("canary-5432")
    password.chmod(0o644)
    try:
        make = [folder / "initdb", "-D", data / "data", "-U", "siltstone", "-A", "scram-sha-256"]
        more = [f"--pwfile={password}", "-N", "--locale=C", "-E", "UTF8"]
        subprocess.run([*make, *more], user=user, check=True, capture_output=True, cwd=data)

        def serve(port: int) -> subprocess.Popen[bytes]:
            command = [folder / "postgres", "-D", data / "data", "-p", str(port), "-k", data]
            with (data / "log").open("wb") as log:
                return subprocess.Popen(
                    [*command, "-h", "127.0.0.1"], user=user, stdout=log, stderr=log, cwd=data
                )

        def answers(port: int) -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        server, port = on_a_free_port(serve, answers, data / "log")
        try:
            yield f"postgres://siltstone:canary-5432@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=PATIENCE)
    finally:
        shutil.rmtree(data, ignore_errors=True)
