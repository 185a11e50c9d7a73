"""Keys and values as text: how the commands read and print them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def _in_form(command: _F) -> _F:
    """Adds `--hex` and `--base64`, which exclude each other; the command gets one as `form`."""

    def chosen(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        before = context.params.setdefault("form", None)
        if not is_given:
            return
        if before is not None:
            raise click.UsageError("--hex and --base64 exclude each other: give one of them")
        context.params["form"] = parameter.name

    for name, kind in (("base64", "base64"), ("hex", "hexadecimal")):
        text = f"Read and print keys and values in {kind}."
        command = click.option(
            f"--{name}", name, is_flag=True, expose_value=False, callback=chosen, help=text
        )(command)
    return command


def _decode(text: str, form: str | None) -> bytes:
    try:
        if form == "hex":
            return bytes.fromhex(text)
        if form == "base64":
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        kind = "hexadecimal" if form == "hex" else "base64"
        raise click.BadParameter(f"{text!r} is not {kind}") from error
    return text.encode("utf-8", "surrogateescape")


def _encode(data: bytes, form: str | None) -> str:
    """Decodes UTF-8; bytes that are not UTF-8 become ``\\xNN``."""
    if form == "hex":
        return data.hex()
    if form == "base64":
        return base64.b64encode(data).decode("ascii")
    return data.decode("utf-8", "backslashreplace")


def _fields(form: str | None, **named: bytes | None) -> dict[str, str | None]:
    """The fields of a JSON object. Bytes that are not UTF-8 are in hexadecimal digits, under a name
    that says so: in a text, their escapes could not be told from the same characters."""
    shown: dict[str, str | None] = {}
    for name, data in named.items():
        if data is None or form is not None:
            shown[name] = None if data is None else _encode(data, form)
            continue
        try:
            shown[name] = data.decode("utf-8")
        except UnicodeDecodeError:
            shown[f"{name}_hex"] = data.hex()
    return shown


_IN_A_LINE = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_IN_A_LINE |= {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def _in_a_line(data: bytes, form: str | None) -> str:
    """As `_encode`; control characters, which break a line or steer a terminal, are escaped."""
    if form is not None:
        return _encode(data, form)
    text = data.decode("utf-8", "surrogateescape").translate(_IN_A_LINE)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
