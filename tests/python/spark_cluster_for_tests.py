"""A standalone cluster on this machine: a master and two workers, each on its own address.

The classes are those that Spark's own scripts start; its package from the index lacks the scripts.
Each is a child process, is ended by its process id, and ends with this process in every case.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyspark

from spark_for_tests import worker_path

HOSTS = ("127.0.0.1", "127.0.0.2")
CORES = 3
PATIENCE = 300.0
CLASSPATH = str(Path(pyspark.__file__).parent / "jars" / "*")
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
    "spark.executor.memory": "512m",
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
}
"""Settings of every session on the cluster."""


def follow_parent() -> None:
    """In a new process: ends it when its parent ends."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def has_both_addresses() -> bool:
    """Whether this system has more than one address of the loopback network."""
    import socket  # noqa: PLC0415

    with socket.socket() as one:
        try:
            one.bind((HOSTS[1], 0))
        except OSError:
            return False
    return True


class Cluster:
    """A master, and one worker for each address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.url = self._master()
        for host in HOSTS:
            self.begin_worker(host)

    def _master(self) -> str:
        arguments = ["--host", HOSTS[0], "--port", "0", "--webui-port", "0"]
        line = self._begin("master", HOSTS[0], "master.Master", arguments, "Starting Spark master")
        return line.rsplit(" ", 1)[-1]

    def begin_worker(self, host: str) -> None:
        """Starts the worker of an address, after the previous one has ended."""
        arguments = ["--host", host, "--cores", str(CORES), "--memory", "2g", "--webui-port", "0"]
        arguments += ["--work-dir", str(self.folder / host), self.url]
        self._begin(host, host, "worker.Worker", arguments, "Successfully registered with master")

    def kill_worker(self, host: str) -> None:
        """Kills a worker; its executors notice and end."""
        process = self.processes.pop(host)
        process.kill()
        process.wait(PATIENCE)

    def end(self) -> None:
        """Ends all processes of the cluster."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(PATIENCE)

    def _begin(self, name: str, host: str, kind: str, arguments: list[str], until: str) -> str:
        """Starts a process, and waits for a line of its log."""
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        # Killed executors are started again. The limit makes a worker that never starts an error.
        patient = "-Dspark.deploy.maxExecutorRetries=100"
        opened = "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
        command = [str(java), "-Xmx256m", patient, opened, "-cp", CLASSPATH]
        environment = {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            # Spark's scripts set this.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": worker_path(),
        }
        log = self.folder / f"{name}-{len(list(self.folder.glob('*.log')))}.log"
        with log.open("w") as lines:
            process = subprocess.Popen(
                [*command, f"org.apache.spark.deploy.{kind}", *arguments],
                stdout=lines,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                preexec_fn=follow_parent,  # noqa: PLW1509 - it sets one attribute
            )
        self.processes[name] = process
        ends = time.monotonic() + PATIENCE
        pause = threading.Event()
        while time.monotonic() < ends:
            for line in log.read_text().splitlines():
                if until in line:
                    return line
            assert process.poll() is None, log.read_text()
            pause.wait(0.05)
        raise AssertionError(f"{kind} did not say {until!r}: {log.read_text()}")
