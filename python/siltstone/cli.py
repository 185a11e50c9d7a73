"""The command line: ``siltstone --path URL COMMAND``.

Keys and values are text in UTF-8, or hexadecimal with ``--hex``. Every command has ``--json``. An
error is one line on standard error, and a non-zero exit: 1 in general, 2 for a wrong call, 3 when
the key asked for is absent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

import siltstone

ABSENT = 3
"""Exit status when the key asked for is not there."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Session:
    """What all commands share: where the database is, and what a store is reached with."""

    def __init__(self, url: str, store_options: dict[str, str]) -> None:
        self.url = url
        self.store_options = store_options

    def reader(self) -> siltstone.Reader:
        """A reader of the database."""
        return siltstone.open_reader(self.url, store_options=self.store_options)

    def writer(self, *, take_over: bool) -> siltstone.Database:
        """The writer. It makes no database, and fences nobody unless asked to."""
        try:
            return siltstone.open(
                self.url, create=False, take_over=take_over, store_options=self.store_options
            )
        except siltstone.Conflict as conflict:
            hint = "if no other writer is alive, give --take-over"
            raise siltstone.Conflict(f"{conflict}; {hint}") from conflict


class Commands(click.Group):
    """Tells errors of the store in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except siltstone.Error as error:
            line = " ".join(str(error).split())
            raise click.ClickException(f"{type(error).__name__}: {line}") from error


def _as_json(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def _as_hex(command: _F) -> _F:
    text = "Keys and values are hexadecimal, not text."
    return click.option("--hex", "as_hex", is_flag=True, help=text)(command)


def _take_over(command: _F) -> _F:
    text = "Fence a writer that did not close cleanly."
    return click.option("--take-over", is_flag=True, help=text)(command)


def _decode(text: str, *, as_hex: bool) -> bytes:
    if not as_hex:
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not hexadecimal") from error


def _encode(data: bytes, *, as_hex: bool) -> str:
    """Text as it is; what is not text stands as ``\\xNN``."""
    return data.hex() if as_hex else data.decode("utf-8", "backslashreplace")


def _store_options(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    options = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter("a store option is NAME=VALUE")
        options[name] = value
    return options


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def _print_table(title: str, rows: dict[str, Any]) -> None:
    """A table on a terminal, ``name<TAB>value`` lines elsewhere."""
    if not sys.stdout.isatty():
        for name, value in rows.items():
            click.echo(f"{name}\t{value}")
        return
    table = Table(title=title)
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in rows.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--path", "url", required=True, metavar="URL", help="Where the database is.")
@click.option(
    "--store-option",
    "store_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_store_options,
    help="Endpoint, region and the like. Better give credentials by the environment.",
)
@click.version_option(siltstone.__version__, package_name="siltstone")
@click.pass_context
def main(context: click.Context, url: str, store_options: dict[str, str]) -> None:
    """Looks into and changes a Siltstone database."""
    context.obj = Session(url, store_options)


@main.command()
@click.argument("key")
@_as_hex
@_as_json
@click.pass_obj
def get(session: Session, key: str, as_hex: bool, as_json: bool) -> None:
    """Prints the value of KEY; exits with 3 when there is none."""
    with session.reader() as reader:
        value = reader.get(_decode(key, as_hex=as_hex))
    if as_json:
        shown = None if value is None else _encode(value, as_hex=as_hex)
        _print_json({"key": key, "value": shown})
    elif value is not None:
        click.echo(_encode(value, as_hex=as_hex))
    else:
        click.echo(f"Error: the key {key!r} is absent", err=True)
    if value is None:
        raise SystemExit(ABSENT)


@main.command()
@click.argument("key")
@click.argument("value")
@click.option("--ttl", type=float, help="Seconds after which the key is gone.")
@_take_over
@_as_hex
@_as_json
@click.pass_obj
def put(
    session: Session,
    key: str,
    value: str,
    ttl: float | None,
    take_over: bool,
    as_hex: bool,
    as_json: bool,
) -> None:
    """Sets KEY to VALUE, durably."""
    name, data = _decode(key, as_hex=as_hex), _decode(value, as_hex=as_hex)
    with session.writer(take_over=take_over) as db:
        commit = db.put(name, data, ttl=ttl)
        commit.wait()
    if as_json:
        _print_json({"key": key, "seq": commit.seq})


@main.command()
@click.argument("key")
@_take_over
@_as_hex
@_as_json
@click.pass_obj
def delete(session: Session, key: str, take_over: bool, as_hex: bool, as_json: bool) -> None:
    """Deletes KEY, durably; that it was absent is no error."""
    name = _decode(key, as_hex=as_hex)
    with session.writer(take_over=take_over) as db:
        commit = db.delete(name)
        commit.wait()
    if as_json:
        _print_json({"key": key, "seq": commit.seq})


@main.command()
@click.option("--start", help="First key.")
@click.option("--end", help="Key to stop before.")
@click.option("--prefix", help="Only keys that start with this.")
@click.option("--reverse", is_flag=True, help="From the greatest key down.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows.")
@_as_hex
@_as_json
@click.pass_obj
def scan(
    session: Session,
    start: str | None,
    end: str | None,
    prefix: str | None,
    reverse: bool,
    limit: int | None,
    as_hex: bool,
    as_json: bool,
) -> None:
    """Prints keys and values, one row a line: tab-separated, or one JSON object each."""

    def bound(text: str | None) -> bytes | None:
        return None if text is None else _decode(text, as_hex=as_hex)

    with (
        session.reader() as reader,
        reader.scan(
            bound(start), bound(end), prefix=bound(prefix), reverse=reverse, limit=limit
        ) as rows,
    ):
        for key, value in rows:
            shown = _encode(key, as_hex=as_hex), _encode(value, as_hex=as_hex)
            if as_json:
                _print_json({"key": shown[0], "value": shown[1]})
            else:
                click.echo("\t".join(shown))


@main.command()
@_as_json
@click.pass_obj
def stats(session: Session, as_json: bool) -> None:
    """Prints what the database holds, as a reader sees it."""
    with session.reader() as reader:
        figures = {name: int(figure) for name, figure in reader.metrics().items()}
    if as_json:
        _print_json(figures)
    else:
        _print_table("stats", figures)


@main.command()
@click.option("--id", "manifest_id", type=click.IntRange(min=1), help="A manifest by number.")
@_as_json
@click.pass_obj
def manifest(session: Session, manifest_id: int | None, as_json: bool) -> None:
    """Prints the newest manifest, or the one with --id."""
    state = siltstone.admin.manifest(session.url, manifest_id, store_options=session.store_options)
    if as_json:
        _print_json(state)
        return
    rows = {}
    for name, value in state.items():
        if isinstance(value, dict):
            rows.update({f"{name}.{inner}": text for inner, text in value.items()})
        else:
            rows[name] = len(value) if isinstance(value, list) else value
    _print_table(f"manifest {state['id']}", rows)


if __name__ == "__main__":
    main()
