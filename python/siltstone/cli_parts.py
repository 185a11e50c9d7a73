"""What the modules of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


class Place(Protocol):
    """Where the database of a command is."""

    @property
    def url(self) -> str:
        """URL or path."""

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
