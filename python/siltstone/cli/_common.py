"""Parameter types, options and output that the commands share."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import click

import siltstone
from siltstone import _native

_F = TypeVar("_F", bound=Callable[..., Any])
_Progress = Callable[[int, int], None]

_LINE_INTERVAL_SECONDS = 10.0


class Place(Protocol):
    """The database of a command, and the means to reach it."""

    @property
    def url(self) -> str:
        """URL or path of the database."""

    @property
    def given_url(self) -> str | None:
        """The value of `--path`, or None if it is missing. Some commands take URLs as arguments."""

    @property
    def store_options(self) -> dict[str, str]:
        """Options of the object store."""

    @property
    def merge_operator(self) -> str | None:
        """Name of the merge operator, or None."""


class Span(click.ParamType[float]):
    """A duration: seconds, or text such as `7days 30min 10s`, as everywhere in the package."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the text to seconds."""
        try:
            return _native.seconds_of_duration(value, "the time")
        except siltstone.Invalid as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """An amount of memory: bytes, or text such as `512MiB`."""

    name = "size"

    def __init__(self, least: int) -> None:
        """Accepts `least` bytes or more."""
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the text to bytes."""
        try:
            size = _native.bytes_of_text(value, "the size")
        except siltstone.Invalid as error:
            self.fail(str(error), param, ctx)
        if size < self.least:
            self.fail(f"{value} is too small: the minimum is {self.least >> 20}MiB", param, ctx)
        return size


def _pairs(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """Parses store options, each NAME=VALUE."""
    options = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter("a store option has the form NAME=VALUE")
        if name in options:
            raise click.BadParameter(f"{name} is given twice")
        options[name] = value
    return options


def _as_json(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain))


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def _example(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  siltstone --path {line}" for line in lines)


def _print_table(title: str, rows: Iterable[tuple[str, Any]]) -> None:
    """Prints a table on a terminal, and ``name<TAB>value`` lines elsewhere.

    :param rows: pairs of a name and a value. A pair whose value is None is a heading on a terminal,
        and is left out elsewhere.
    """
    if not sys.stdout.isatty():
        for name, value in rows:
            if value is not None:
                click.echo(f"{name}\t{value}")
        return
    # Imported here because most commands draw no table, and start faster without it.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # Not as texts, in which rich would look for markup.
    table = Table(title=Text(title))
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in rows:
        if value is None:
            table.add_section()
            table.add_row(Text(name, style="bold"), "")
        else:
            table.add_row(Text(name), Text(str(value)))
    Console().print(table)


@contextlib.contextmanager
def _until_stopped() -> Iterator[None]:
    """Runs the block until Ctrl-C or SIGTERM, which end it in order, with status 0."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Stopping is the normal end: no traceback.
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextlib.contextmanager
def _progress(doing: str, unit: str) -> Iterator[_Progress]:
    """Shows the progress of long work on standard error: a bar on a terminal, elsewhere a line
    every ten seconds.

    :param doing: the label of the bar or the line.
    :param unit: the unit of the counts: `bytes`, or the name of the counted things.
    """
    if not sys.stderr.isatty():
        yield _lines_of(doing, unit)
        return
    # Imported here for the same reason as for tables.
    from rich import progress as bars  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    counter = bars.DownloadColumn() if unit == "bytes" else bars.MofNCompleteColumn()
    columns = bars.TextColumn(doing), bars.BarColumn(), counter
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)

        def drawn(done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(done, total) or None)

        yield drawn


def _lines_of(doing: str, unit: str) -> _Progress:
    last = time.monotonic()

    def line(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last < _LINE_INTERVAL_SECONDS:
            return
        last = time.monotonic()
        counts = f"{done / 1e6:.1f} of {max(done, total) / 1e6:.1f} MB"
        if unit != "bytes":
            counts = f"{done} of {total} {unit}"
        click.echo(f"{doing}: {counts}", err=True)

    return line
