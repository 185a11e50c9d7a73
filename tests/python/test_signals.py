"""Ctrl-C ends every wait within a second."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import siltstone
from aio_for_tests import SLOW
from pace_for_tests import PATIENCE, quickest

PRELUDE = """
import sys, siltstone
url, endpoint = sys.argv[1:]
def slow():
    options = {"endpoint": endpoint, "allow_http": True, "region": "r",
               "access_key_id": "a", "secret_access_key": "s"}
    # The deadline is longer than the test waits, so the call does not end by itself.
    patient = {"deadline": 3600}
    return siltstone.open_reader("s3://bucket/db", store_options=options, options=patient)
db = siltstone.open(url)
db.put_many([b"%06d" % i for i in range(200_000)], [b"v"] * 200_000)
def forever(call):
    call()
    print("ready", flush=True)
    while True:
        call()
"""

WAITS = {
    # It is ready when the server has its connection.
    "open": "slow()",
    "puts that wait": "forever(lambda: db.put(b'k', b'v').wait())",
    "flush": "forever(lambda: (db.put(b'k', b'v'), db.flush()))",
    "scan in a C loop": "forever(lambda: list(db.scan()))",
    "keys in a C loop": "forever(lambda: max(db.keys()))",
    "get_many": "forever(lambda: db.get_many([b'%06d' % i for i in range(2000)]))",
    # The program catches the consumer's error, as a retry loop would: Ctrl-C must still end it.
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


@contextlib.contextmanager
def silent():
    """A server that accepts connections and never answers, and its endpoint."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(PATIENCE)
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"


def interrupted(url: str, wait: str) -> float:
    """Seconds from Ctrl-C to the end of a waiting process."""
    with silent() as (server, endpoint), contextlib.ExitStack() as kept:
        child = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WAITS[wait], url, endpoint],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            if wait == "open":
                kept.enter_context(server.accept()[0])
            else:
                assert child.stdout.readline() == "ready\n"
            asked = time.monotonic()
            os.kill(child.pid, signal.SIGINT)
            if wait == "arrow":
                # pyarrow ignores a KeyboardInterrupt that comes while it releases memory. Such a
                # try counts as slow.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=10)
                child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=PATIENCE)
            took = time.monotonic() - asked
        finally:
            child.kill()
    assert "KeyboardInterrupt" in err, err
    assert child.returncode in (130, -signal.SIGINT), err
    return took


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(tmp_path, wait: str) -> None:
    made = (str(tmp_path / str(number)) for number in itertools.count())
    # The wait takes one second; the rest is the close at exit.
    quickest(lambda: interrupted(next(made), wait), 3)


def test_a_wait_ends_within_a_second() -> None:
    """Timed inside the process, which sees the wait itself, from the moment at which the server has
    its request."""

    class Stop(Exception):
        pass

    def stop(_number, _frame) -> None:
        raise Stop

    def attempt() -> float:
        asked: list[float] = []
        ended, main = threading.Event(), threading.get_ident()

        def ask() -> None:
            with server.accept()[0] as connection:
                connection.recv(1)
                asked.append(time.monotonic())
                signal.pthread_kill(main, signal.SIGALRM)
                # A lost connection would end the wait too.
                ended.wait(PATIENCE)

        with silent() as (server, endpoint):
            thread = threading.Thread(target=ask)
            thread.start()
            access = {"access_key_id": "a", "secret_access_key": "s", "region": "r"}
            try:
                with pytest.raises(Stop):
                    siltstone.open_reader(
                        "s3://bucket/db",
                        store_options={"endpoint": endpoint, "allow_http": True, **access},
                        options={"deadline": 3600},
                    )
                return time.monotonic() - asked[0]
            finally:
                ended.set()
                thread.join()

    before = signal.signal(signal.SIGALRM, stop)
    try:
        quickest(attempt, 1)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_wait_cancels_no_write(url: str) -> None:
    """The alarm may fire at any moment, and raises only while the test expects it."""
    armed, interrupted, accepted = False, 0, []

    class Stop(Exception):
        pass

    def stop(_number, _frame) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # Two objects a second: nearly all waits last until they are interrupted.
        with siltstone.open(url, options=SLOW) as db:
            for i in range(50):
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, 0.0005)
                    commit = db.put(b"%02d" % i, b"v")
                    accepted.append((b"%02d" % i, commit))
                    commit.wait()
                    armed = False
                except Stop:
                    interrupted += 1
                if i % 2:
                    db[b"%02d" % i] = b"w"
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert interrupted > 0
            db.flush()
            assert all(commit.durable for _, commit in accepted)
            expected = {key: b"v" for key, _ in accepted}
            expected |= {b"%02d" % i: b"w" for i in range(1, 50, 2)}
            found = dict(db)
            # A put that was interrupted before it returned may have been accepted.
            assert {**found, **expected} == found
            assert len(found) <= 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with siltstone.open(url, take_over=False) as db:
        assert dict(db) == found
