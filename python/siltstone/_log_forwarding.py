"""Forwards log lines of the engine to `logging`.

The loggers are children of `siltstone`; docs/operations.md lists them under "Log events". One
thread forwards the lines, so that no thread of the engine waits for the interpreter.
"""

from __future__ import annotations

import threading

from siltstone import _native

__all__: list[str] = []

_PATIENCE_SECONDS = 2.0
_thread: threading.Thread | None = None


def start() -> None:
    """Starts the thread if it is not running, as in a forked child."""
    global _thread  # noqa: PLW0603
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_hand_on, name="siltstone-lines", daemon=True)
        _thread.start()


def stop() -> None:
    """Waits until all lines are forwarded. No lines follow."""
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_PATIENCE_SECONDS)


def _hand_on() -> None:
    while (lines := _native.next_lines()) is not None:
        # Imported with the first line, because the import takes half as long as opening a database.
        import logging  # noqa: PLC0415

        for logger, level, text in lines:
            logging.getLogger(logger).log(level, "%s", text)
