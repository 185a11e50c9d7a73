"""Ctrl-C ends every wait within a second."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import siltstone

PRELUDE = """
import sys, siltstone
url, endpoint = sys.argv[1:]
def slow():
    options = {"endpoint": endpoint, "allow_http": True, "region": "r",
               "access_key_id": "a", "secret_access_key": "s"}
    return siltstone.open_reader("s3://bucket/db", store_options=options)
db = siltstone.open(url)
db.put_many([b"%06d" % i for i in range(200_000)], [b"v"] * 200_000)
def forever(call):
    while True:
        call()
print("ready", flush=True)
"""

WAITS = {
    "open": "slow()",
    "puts that wait": "forever(lambda: db.put(b'k', b'v').wait())",
    "flush": "forever(lambda: (db.put(b'k', b'v'), db.flush()))",
    "scan in a C loop": "forever(lambda: list(db.scan()))",
    "keys in a C loop": "forever(lambda: max(db.keys()))",
    "get_many": "forever(lambda: db.get_many([b'%06d' % i for i in range(2000)]))",
    # The consumer's error is caught, as a loop that tries again would: Ctrl-C comes through.
    "arrow": """
import pyarrow as pa
def again():
    try:
        pa.table(db.scan().to_arrow(100))
    except pa.ArrowException:
        pass
forever(again)
""",
    "reopening": "forever(lambda: siltstone.open_reader(url).close())",
}


@pytest.fixture
def silent():
    """The endpoint of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(url: str, silent: str, wait: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + WAITS[wait], url, silent],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        asked = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=20)
        took = time.monotonic() - asked
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err, err
    assert child.returncode in (130, -signal.SIGINT), err
    # One second for the wait; what else there is, is closing the database at exit.
    assert took < 3, err


def test_a_wait_ends_within_a_second(silent: str) -> None:
    """Timed inside the process, where the wait itself can be seen."""

    class Stop(Exception):
        pass

    def stop(_number, _frame) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begun = time.monotonic()
        with pytest.raises(Stop):
            siltstone.open_reader(
                "s3://bucket/db",
                store_options={
                    "endpoint": silent,
                    "allow_http": True,
                    "region": "r",
                    "access_key_id": "a",
                    "secret_access_key": "s",
                },
            )
        assert time.monotonic() - begun < 1.3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_wait_cancels_no_write(url: str) -> None:
    interrupted = 0

    class Stop(Exception):
        pass

    def stop(_number, _frame) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with siltstone.open(url) as db:
            for i in range(50):
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                try:
                    commit = None
                    commit = db.put(b"%02d" % i, b"v")
                    commit.wait()
                except Stop:
                    interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                db[b"%02d" % i] = b"w"
            db.flush()
            assert list(db.values()) == [b"w"] * 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with siltstone.open(url, take_over=False) as db:
        assert list(db.values()) == [b"w"] * 50
