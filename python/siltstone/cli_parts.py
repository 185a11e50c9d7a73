"""What the modules of the command line share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


class Place(Protocol):
    """Where the database of a command is."""

    @property
    def url(self) -> str:
        """URL or path."""

    @property
    def given_url(self) -> str | None:
        """The same; None where none was given, which some commands take."""

    @property
    def store_options(self) -> dict[str, str]:
        """What its store is reached with."""

    @property
    def merge_operator(self) -> str | None:
        """What folds operands."""


def _as_json(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)


def _example(*lines: str) -> str:
    """What stands below a command's options."""
    return "\b\nExamples:\n" + "\n".join(f"  siltstone --path {line}" for line in lines)


def _print_table(title: str, rows: Iterable[tuple[str, Any]]) -> None:
    """A table on a terminal, ``name<TAB>value`` lines elsewhere. A name alone is a heading."""
    if not sys.stdout.isatty():
        for name, value in rows:
            if value is not None:
                click.echo(f"{name}\t{value}")
        return
    # Imported here: most commands draw no table, and all should start fast.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title)
    table.add_column("name")
    table.add_column("value", justify="right")
    for name, value in rows:
        if value is None:
            table.add_section()
            table.add_row(Text(name, style="bold"), "")
        else:
            table.add_row(name, Text(str(value)))
    Console().print(table)
