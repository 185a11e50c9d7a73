"""What the engine says, handed on to `logging`.

Loggers are `siltstone.compaction` (a line a compaction), `siltstone.pressure` (why writes are
slowed or stopped), `siltstone.close` (a close that nobody asked for failed), `siltstone.gc`,
`siltstone.task` (a task died) and their parent `siltstone`. One thread hands the lines on, since no
thread of the engine waits for the interpreter.
"""

from __future__ import annotations

import threading

from siltstone import _native

__all__: list[str] = []

_PATIENCE_SECONDS = 2.0
_thread: threading.Thread | None = None


def start() -> None:
    """Has the thread run, if it does not: in a forked child that of the parent is gone."""
    global _thread  # noqa: PLW0603
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_hand_on, name="siltstone-lines", daemon=True)
        _thread.start()


def stop() -> None:
    """Waits until all is told. Nothing comes any more."""
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_PATIENCE_SECONDS)


def _hand_on() -> None:
    while (lines := _native.next_lines()) is not None:
        # Once something is said, and here: to import it takes half as long as to open a database.
        import logging  # noqa: PLC0415

        for logger, level, text in lines:
            logging.getLogger(logger).log(level, "%s", text)
