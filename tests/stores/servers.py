"""The stores that the conformance runs use. Each server is started on loopback and stopped again.

A store whose program is missing raises :class:`Missing` with the way to get it. Programs that are
no part of the Python environment are looked up in a cache folder, ``siltstone/stores`` of
``$XDG_CACHE_HOME``, and on the ``PATH``.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import siltstone

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from dynamodb_for_tests import dynamodb  # noqa: E402
from gcs_for_tests import Gcs  # noqa: E402
from mariadb_for_tests import mariadb  # noqa: E402
from mariadb_for_tests import program as mariadb_program  # noqa: E402
from mariadb_for_tests import version as mariadb_version  # noqa: E402
from overwriting_s3_for_tests import OverwritingS3  # noqa: E402
from postgres_for_tests import postgres, programs  # noqa: E402

BUCKET = "quarry"
PATIENCE = 60.0


class Missing(Exception):
    """A server that is not on this machine. The text says how to get it."""


@dataclass(frozen=True)
class RunningStore:
    """A store that is ready for databases."""

    version: str
    place: str
    """The URL below which databases are made."""
    options: dict[str, str] = field(default_factory=dict)
    shared: bool = True
    """Whether other processes reach it."""

    def url(self, name: str) -> str:
        """The URL of a database."""
        return f"{self.place}/{name}"


def cache() -> Path:
    """The folder of downloaded servers."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "siltstone" / "stores"


def free_port() -> int:
    """A port of loopback that no program listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def serving(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """A server process from the moment it listens; it is stopped at the end."""
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            over = time.monotonic() > end or child.poll() is not None
            assert not over, (folder / "log").read_text(errors="replace")
            time.sleep(0.05)
        yield
    finally:
        child.terminate()
        try:
            child.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """A folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="siltstone-stores-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def folder() -> Iterator[RunningStore]:
    """A folder of a local file system."""
    with temporary() as path:
        yield RunningStore(platform.system(), str(path))


@contextlib.contextmanager
def memory() -> Iterator[RunningStore]:
    """The memory of this process, which no other process reaches."""
    yield RunningStore(f"siltstone {siltstone.__version__}", "memory://stores", shared=False)


def s3(endpoint: str, key: str = "key", secret: str = "secret") -> dict[str, str]:
    """The options of an S3 server."""
    keys = {"access_key_id": key, "secret_access_key": secret, "region": "us-east-1"}
    return {"endpoint": endpoint, "allow_http": "true", **keys}


@contextlib.contextmanager
def moto() -> Iterator[RunningStore]:
    """The emulator moto, one request at a time."""
    try:
        version = importlib.metadata.version("moto")
    except importlib.metadata.PackageNotFoundError:
        raise Missing("pip install 'moto[server]'") from None
    program = ROOT / "tests" / "support" / "serve_moto.py"
    command = [sys.executable, str(program)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        endpoint = f"http://127.0.0.1:{int(child.stdout.readline())}"
        made = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        made.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/x")
        urllib.request.urlopen(made).close()
        yield RunningStore(f"moto {version}", f"s3://{BUCKET}", s3(endpoint))
    finally:
        child.stdin.close()
        child.wait(timeout=PATIENCE)
        child.stdout.close()


@contextlib.contextmanager
def versitygw() -> Iterator[RunningStore]:
    """An S3 server over a local folder, in Go."""
    program = shutil.which("versitygw", path=f"{cache() / 'bin'}:{os.environ.get('PATH', '')}")
    if program is None:
        package = "github.com/versity/versitygw/cmd/versitygw@latest"
        raise Missing(f"GOBIN={cache()}/bin go install {package}")
    command = ["go", "version", "-m", program]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        told = ""
    module = [line.split() for line in told.splitlines() if line.strip().startswith("mod\t")]
    version = module[0][2] if module else "unknown version"
    with temporary() as path:
        (path / "data" / BUCKET).mkdir(parents=True)
        port = free_port()
        keys = ["--access", "key", "--secret", "secret"]
        bind = ["--port", f"127.0.0.1:{port}", "--region", "us-east-1"]
        with serving([program, *keys, *bind, "posix", str(path / "data")], port, path):
            options = s3(f"http://127.0.0.1:{port}")
            yield RunningStore(f"versitygw {version}", f"s3://{BUCKET}", options)


ACCOUNT = "devstoreaccount1"
# The published key of the emulator's account.
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def make_container(endpoint: str) -> None:
    """Makes the container, by a request with a shared key."""
    version, now = "2023-11-03", formatdate(usegmt=True)
    headers = f"x-ms-date:{now}\nx-ms-version:{version}\n"
    resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signed = "PUT" + "\n" * 12 + headers + resource
    key = base64.b64decode(ACCOUNT_KEY)
    digest = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    made = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT")
    made.add_header("x-ms-date", now)
    made.add_header("x-ms-version", version)
    made.add_header("Authorization", f"SharedKey {ACCOUNT}:{digest}")
    urllib.request.urlopen(made).close()


@contextlib.contextmanager
def azurite() -> Iterator[RunningStore]:
    """Microsoft's emulator of Azure Blob Storage, in Node.js."""
    package = cache() / "azurite" / "node_modules" / "azurite"
    if not (package / "package.json").exists() or shutil.which("node") is None:
        raise Missing(f"npm install --prefix {cache()}/azurite azurite")
    version = json.loads((package / "package.json").read_text())["version"]
    with temporary() as path:
        port = free_port()
        command = ["node", str(package / "dist" / "src" / "blob" / "main.js")]
        bind = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
        quiet = ["--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        with serving([*command, *bind, *quiet], port, path):
            endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
            make_container(endpoint)
            keys = {"account_name": ACCOUNT, "access_key": ACCOUNT_KEY}
            options = {"endpoint": endpoint, "allow_http": "true", **keys}
            yield RunningStore(f"Azurite {version}", f"az://{BUCKET}", options)


@contextlib.contextmanager
def gcs() -> Iterator[RunningStore]:
    """The XML protocol of Google Cloud Storage, by a server of these tests."""
    with Gcs() as server:
        yield RunningStore("server of the tests", f"gs://{BUCKET}", server.options)


@contextlib.contextmanager
def sqlite() -> Iterator[RunningStore]:
    """Records in SQLite, beside an S3 server that ignores conditions."""
    with temporary() as path, OverwritingS3() as server:
        options = {**server.options, "transactional_store": f"sqlite://{path}/records"}
        yield RunningStore("SQLite of the package", f"s3://{BUCKET}", options)


@contextlib.contextmanager
def postgresql() -> Iterator[RunningStore]:
    """Records in PostgreSQL, beside an S3 server that ignores conditions."""
    where = programs()
    if where is None:
        raise Missing("apt-get install postgresql, or pip install pgserver")
    command = [str(where / "postgres"), "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    with postgres() as url, OverwritingS3() as server:
        options = {**server.options, "transactional_store": url}
        yield RunningStore(f"PostgreSQL {told[2]}", f"s3://{BUCKET}", options)


@contextlib.contextmanager
def mysql() -> Iterator[RunningStore]:
    """Records in MariaDB, beside an S3 server that ignores conditions."""
    if mariadb_program() is None:
        raise Missing("apt-get install mariadb-server-core")
    with mariadb() as url, OverwritingS3() as server:
        options = {**server.options, "transactional_store": url}
        yield RunningStore(f"MariaDB {mariadb_version()}", f"s3://{BUCKET}", options)


@contextlib.contextmanager
def dynamo() -> Iterator[RunningStore]:
    """Records in an emulator of DynamoDB, beside an S3 server that ignores conditions."""
    try:
        version = importlib.metadata.version("moto")
    except importlib.metadata.PackageNotFoundError:
        raise Missing("pip install 'moto[server]'") from None
    with dynamodb() as url, OverwritingS3() as server:
        options = {**server.options, "transactional_store": url}
        yield RunningStore(f"moto {version}", f"s3://{BUCKET}", options)


STORES: dict[str, Callable[[], AbstractContextManager[RunningStore]]] = {
    "folder": folder,
    "memory": memory,
    "moto": moto,
    "versitygw": versitygw,
    "azurite": azurite,
    "gcs": gcs,
    "sqlite": sqlite,
    "postgresql": postgresql,
    "mariadb": mysql,
    "dynamodb": dynamo,
}
CHEAP = ("folder", "moto")
