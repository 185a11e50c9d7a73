"""Keys and values as text: how the commands read and print them."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


_FORMS = {
    "escaped": "Read and print keys and values with the escapes of `scan`.",
    "base64": "Read and print keys and values in base64.",
    "hex": "Read and print keys and values in hexadecimal.",
}


def _in_form(command: _F) -> _F:
    """Adds the options of the forms, which exclude each other; the command gets one as `form`."""

    def chosen(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        before = context.params.setdefault("form", None)
        if not is_given:
            return
        if before is not None:
            text = "--hex, --base64 and --escaped exclude each other: give one of them"
            raise click.UsageError(text)
        context.params["form"] = parameter.name

    for name, text in _FORMS.items():
        command = click.option(
            f"--{name}", name, is_flag=True, expose_value=False, callback=chosen, help=text
        )(command)
    return command


def _decode(text: str, form: str | None) -> bytes:
    """Returns the bytes of a key or value that is given as text."""
    try:
        if form == "hex":
            return bytes.fromhex(text)
        if form == "base64":
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        kind = "hexadecimal" if form == "hex" else "base64"
        raise click.BadParameter(f"{text!r} is not {kind}") from error
    data = text.encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(_unescaped, data) if form == "escaped" else data


_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_ESCAPED = {b"\\": b"\\", b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def _unescaped(found: re.Match[bytes]) -> bytes:
    digits, escape = found.groups()
    if digits is not None:
        return bytes.fromhex(digits.decode("ascii"))
    if escape not in _ESCAPED:
        text = "a backslash begins \\xNN (a byte), \\t, \\n or \\r, and is itself written \\\\"
        raise click.BadParameter(f"{text}; without --escaped, text is taken as it is")
    return _ESCAPED[escape]


def _encode(data: bytes, form: str | None) -> str:
    """Returns a key or value as text in one line. `_decode` returns the same bytes from it; for
    text, with the form `escaped`.

    In text, backslashes, control characters, bytes that are not UTF-8 and characters that stdout
    cannot print are escaped.
    """
    if form == "hex":
        return data.hex()
    if form == "base64":
        return base64.b64encode(data).decode("ascii")
    return _printable(data.decode("utf-8", "surrogateescape").translate(_IN_A_LINE))


def _plain(data: bytes, form: str | None) -> str:
    """As `_encode`, but without a form only what stdout cannot print is escaped."""
    if form is not None:
        return _encode(data, form)
    return _printable(data.decode("utf-8", "surrogateescape"))


def _printable(text: str) -> str:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, _ESCAPES).decode(encoding)


def _print_line(form: str | None, *data: bytes, before: str = "") -> None:
    """Prints keys and values, separated by tabs."""
    click.echo(before + "\t".join(_encode(one, form) for one in data))


def _fields(form: str | None, **named: bytes | None) -> dict[str, str | None]:
    """The fields of a JSON object. Bytes that are not UTF-8 are in hexadecimal digits, under a name
    that says so: in a text, their escapes could not be told from the same characters."""
    shown: dict[str, str | None] = {}
    for name, data in named.items():
        if data is None or form in ("hex", "base64"):
            shown[name] = None if data is None else _encode(data, form)
            continue
        try:
            shown[name] = data.decode("utf-8")
        except UnicodeDecodeError:
            shown[f"{name}_hex"] = data.hex()
    return shown


def _escape(characters: str) -> str:
    """Escapes the UTF-8 of characters, and bytes that are not UTF-8."""
    return "".join(f"\\x{byte:02x}" for byte in characters.encode("utf-8", "surrogateescape"))


def _escape_unprintable(error: UnicodeError) -> tuple[str, int]:
    """Escapes the characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _escape(error.object[error.start : error.end]), error.end


_ESCAPES = "siltstone-escapes"
codecs.register_error(_ESCAPES, _escape_unprintable)

# Control characters and line separators break a line or steer a terminal.
_IN_A_LINE = {code: _escape(chr(code)) for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}
_IN_A_LINE |= {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
