"""A headless Chromium, driven by the DevTools protocol through two pipes.

It needs no package and opens no port. Names of hosts do not resolve in it, so a page can load only
what a loopback address serves.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = "Chromium is missing; Debian and Ubuntu: apt-get install chromium-headless-shell"
PATIENCE = 60.0
# The browser reads commands from descriptor 3 and writes answers to descriptor 4.
START = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])"""


def program() -> str | None:
    """The path of an installed Chromium."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Chromium:
    """A browser with one page."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.requested: list[str] = []
        self.failures: list[str] = []
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Network", "Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requested.append(details["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.failures.append(str(details["exceptionDetails"]))

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser did not answer"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        whole, _, self._rest = self._rest.partition(b"\0")
        return json.loads(whole)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Waits until an expression is true, and returns its value."""
        until = time.monotonic() + PATIENCE
        while not (value := self.value(expression)):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.1)
        return value

    def open(self, url: str) -> None:
        """Opens a page and waits until it and its pictures are loaded."""
        self.call("Page.navigate", url=url)
        place = json.dumps(url.partition("?")[0])
        self.wait(f"location.href.startsWith({place}) && document.readyState === 'complete'")


@contextmanager
def browser(path: str, folder: Path) -> Iterator[Chromium]:
    """Starts a browser with an empty profile, and ends it."""
    ends: list[int] = []
    for pair in (os.pipe(), os.pipe()):
        for end in pair:  # above 3 and 4, which the browser reads and writes
            ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
            os.close(end)
    reads, to_browser, from_browser, writes = ends
    options = ["--remote-debugging-pipe", "--headless", "--disable-gpu", "--no-first-run"]
    options += ["--disable-dev-shm-usage", f"--user-data-dir={folder}"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    # The sandbox refuses to start as root.
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(reads), str(writes), path, *options],
        pass_fds=(reads, writes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        yield Chromium(to_browser, from_browser)
    finally:
        os.close(to_browser)  # the browser ends when its pipe does
        os.close(from_browser)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
