"""Functions that give store options: by name, so that the name can travel where secrets may not.

A reader that was opened with such a function pickles the function's name. The other end imports it
and calls it there: with the credentials of that machine, fresh.
"""

from __future__ import annotations

import importlib
from typing import Any

from siltstone.exceptions import Invalid

__all__ = ["called", "name_of", "resolve"]


def called(provider: Any) -> Any:
    """What the provider, a function or its name, gives; what is neither is given back as it is."""
    function = resolve(provider) if isinstance(provider, str) else provider
    return function() if callable(function) else function


def name_of(provider: Any) -> str | None:
    """``module:function`` for a provider, None for what is none. For a function that cannot be
    found by its name the text says what it is, and `resolve` refuses it.
    """
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
    return name if same else f"{name} <not importable>"


def resolve(name: str, what: str = "the provider of store options") -> Any:
    """The function of that name, or whatever else of that name can be called or holds functions.

    :raises Invalid: there is none in this process.
    """
    why: Exception | None = None
    try:
        function = _found(name)
        if callable(function) or (function is not None and hasattr(function, "fold")):
            return function
    except (ImportError, AttributeError) as error:
        why = error
    raise Invalid(
        f"{what} {name!r} cannot be imported here: it must be a function at the "
        "top of a module that every process can import, written module:function",
        context={"provider": name},
    ) from why


def _found(name: str) -> Any:
    """What has that name, or None where the name cannot be anything's."""
    module, _, path = name.partition(":")
    if not module or not path or "<" in path:
        return None
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
