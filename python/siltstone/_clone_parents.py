"""The parents of a clone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from siltstone._checkpoints import CheckpointLike

__all__ = ["Parent", "ParentLike", "ParentsLike", "given_parents"]

_Url = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Parent:
    """A database, or a range of its keys, to clone: ``clone(url, parent=…)``.

    If databases share keys, give each a range: ``Parent("a.db", end=b"m")`` takes the keys of one
    below m, and ``Parent("b.db", start=b"m")`` the other keys of another.
    """

    url: _Url
    """URL or path of the database."""
    checkpoint: CheckpointLike | None = None
    """Checkpoint to clone; None: the checkpoint of the call, or else the state that is durable
    now."""
    start: bytes | None = None
    """First key, inclusive; None: no lower bound."""
    end: bytes | None = None
    """End key, exclusive; None: no upper bound."""


ParentLike = _Url | tuple[_Url, CheckpointLike | None] | Parent
"""A parent: its URL or path, a pair of these and a checkpoint, or a `Parent`."""
ParentsLike = _Url | Parent | Sequence[ParentLike]
"""One or more parents."""


def given_parents(parents: ParentsLike, checkpoint: CheckpointLike | None) -> list[Parent]:
    """Returns one `Parent` for each. `checkpoint` applies to those without one.

    :raises TypeError: for a tuple that is not a pair.
    """
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
