"""Functions that are named as `module:function`, such as providers of store options and merge
operators.

A reader that was opened with such a provider pickles only the name. The unpickling process imports
the function and calls it there, so that the credentials of that machine are used and no secret
travels.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from siltstone.exceptions import Invalid

__all__ = ["called", "is_name", "name_of", "resolve"]

_PROVIDER = "the provider of store options"
_UNIMPORTABLE = " <not importable>"
_PART = r"(?:[^\W\d]\w*|<[\w.]+>)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*:{_PART}(?:\.{_PART})*(?:{_UNIMPORTABLE})?")
"""A name, or the text of `name_of` for a function without one (``module:<lambda>``)."""


def called(provider: Any) -> Any:
    """Returns the result of a provider, given as a function or by name. Any other object is
    returned unchanged."""
    function = resolve(provider) if isinstance(provider, str) else provider
    return function() if callable(function) else function


def name_of(provider: Any) -> str | None:
    """Returns ``module:function`` for a provider, and None for any other object. For a function
    that cannot be imported by name, the text says so, and `resolve` refuses it."""
    if isinstance(provider, str):
        return provider
    if not callable(provider):
        return None
    module = getattr(provider, "__module__", None) or type(provider).__module__
    qualified = getattr(provider, "__qualname__", None) or f"<{type(provider).__qualname__}>"
    name = f"{module}:{qualified}"
    try:
        same = _found(name) == provider
    except (ImportError, AttributeError):
        same = False
    return name if same else f"{name}{_UNIMPORTABLE}"


def is_name(text: str) -> bool:
    """Whether a text has the form ``module:function``. Any other text may be the store options
    themselves, such as JSON with a secret, so that no error may show it."""
    return _NAME.fullmatch(text) is not None


def resolve(name: str, what: str = _PROVIDER) -> Any:
    """Returns the object with a name: a function, or an object with a `fold` attribute.

    :raises Invalid: if it cannot be imported in this process.
    """
    if not is_name(name):
        raise Invalid(_no_name(what))
    why: Exception | None = None
    try:
        function = _found(name)
        if callable(function) or (function is not None and hasattr(function, "fold")):
            return function
    except (ImportError, AttributeError) as error:
        why = error
    reason = "" if why is None else f" ({why})"
    raise Invalid(
        f"{what} {name!r} cannot be imported here: it must be a function at the "
        f"top of a module that every process can import, written module:function{reason}",
        context={"provider": name},
    ) from why


def _no_name(what: str) -> str:
    text = (
        f"{what}, given as text, is the name of a function, written module:function; the given "
        "text has another form, and is not shown because it may contain a secret"
    )
    if what != _PROVIDER:
        return text
    return f"{text}. Give the options themselves as a dict; for Spark's workers, name a function"


def _found(name: str) -> Any:
    """Imports the object with a name; None if the name has no valid form."""
    module, _, path = name.partition(":")
    if not module or not path or "<" in path:
        return None
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
