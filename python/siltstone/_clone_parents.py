"""What a clone begins with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from siltstone._checkpoints import CheckpointLike

__all__ = ["Parent", "ParentLike", "ParentsLike", "given_parents"]

_Url = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Parent:
    """A database, or a part of it, that a clone begins with: ``clone(url, parent=…)``.

    Where databases share keys it says which part of each counts: ``Parent("a.db", end=b"m")`` is
    what of one lies below m, and ``Parent("b.db", start=b"m")`` the rest, of another.
    """

    url: _Url
    """Where it is."""
    checkpoint: CheckpointLike | None = None
    """The state to begin with; None: what the call names, or else all that is durable now."""
    start: bytes | None = None
    """The first key to take over; None: from the first one."""
    end: bytes | None = None
    """The key before which to stop; None: after the last one."""


ParentLike = _Url | tuple[_Url, CheckpointLike | None] | Parent
"""A parent among several: its URL or path, alone or with a checkpoint beside it, or a `Parent`."""
ParentsLike = _Url | Parent | Sequence[ParentLike]
"""A parent, or several."""


def given_parents(parents: ParentsLike, checkpoint: CheckpointLike | None) -> list[Parent]:
    """Each by itself. `checkpoint` is that of those that name none."""
    if isinstance(parents, (str, os.PathLike, Parent)):
        parents = [parents]
    return [_given(one, checkpoint) for one in parents]


def _given(one: ParentLike, checkpoint: CheckpointLike | None) -> Parent:
    if isinstance(one, tuple):
        try:
            url, at = one
        except ValueError:
            taken = "a URL, a pair of a URL and a checkpoint, or a Parent"
            raise TypeError(f"a parent is {taken}, not a tuple of {len(one)}") from None
        one = Parent(url, at)
    elif not isinstance(one, Parent):
        one = Parent(one)
    return one if one.checkpoint is not None else replace(one, checkpoint=checkpoint)
