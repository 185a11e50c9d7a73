"""The standard streams of the program: a stream that was closed before the start has a replacement,
and every text can be printed in every encoding. Errors of the library and of streams are one line.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator

import click

import siltstone
from siltstone.cli._remedies import _told

CLOSED = 141
"""Exit status when the output was closed: that of a program which SIGPIPE ends, 128 + 13."""


def prepare_streams() -> None:
    """Replaces closed standard streams, and sets how stdout prints characters that its encoding
    lacks. Python sets `sys.stdout` to None if the descriptor was closed, as by ``>&-``."""
    # The lowest free descriptor is used: in this order the streams get their own descriptors, and
    # no file of a database gets one of them.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = os.fdopen(_unread_pipe(), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _unread_pipe() -> int:
    """Returns the descriptor of a pipe that has no reader. A write to it fails with EPIPE, as one
    to an output that was closed later."""
    reader, writer = os.pipe()
    os.dup2(writer, reader)
    os.close(writer)
    return reader


@contextlib.contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Converts errors of the library, of files and of the terminal to those that click prints in
    one line.

    :raises ClickException: for an error of the library, or of a file or the terminal.
    :raises Exit: if the reader of the output has closed it.
    """
    try:
        yield
    except siltstone.Error as error:
        raise click.ClickException(_told(error)) from error
    except UnicodeEncodeError as error:
        # An argument in another encoding: only keys, values and names of files may be any bytes.
        text = f"{error.object!r} is not valid UTF-8; if it should be, set LC_ALL=C.UTF-8"
        raise click.UsageError(text) from error
    except OSError as error:
        # Its reader has closed the pipe, as `head` does. Click would exit with 1, which of
        # `verify` means damage.
        if error.errno == errno.EPIPE:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(CLOSED) from error
        raise click.ClickException(f"input or output failed: {error}") from error
