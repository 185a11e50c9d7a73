"""The class `Checkpoint`, and conversions of checkpoints for the compiled module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from siltstone._numbers import count_of
from siltstone.exceptions import Invalid
from siltstone.options import Seconds

__all__ = ["Checkpoint", "CheckpointLike", "asked_for", "moment", "name_of", "read_at"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state of a database that any process can read with ``open_reader(url, checkpoint=…)`` until
    the checkpoint is deleted or expires. It holds plain values: it can be pickled, and keeps
    nothing open.
    """

    id: UUID
    """Permanent identity. A name can be reused by a later checkpoint; an id cannot."""
    manifest_id: int
    """Number of the manifest that the checkpoint pins."""
    created: datetime
    """Time of creation, by the clock of the creating process."""
    expires: datetime | None = None
    """Time after which it may be collected; None: never. Until it is collected it can be read and
    refreshed."""
    name: str | None = None
    """Name, unique in the database; None: no name."""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Text values that were attached at creation."""
    source: UUID | None = None
    """Id of the checkpoint whose state it keeps; None: it was made of the current state."""
    owner: str = "user"
    """Owner: "user", "clone", or "writer" or "reader" for a checkpoint that a process keeps for its
    own reads."""

    @classmethod
    def _of(
        cls,
        id: str,
        manifest_id: int,
        created_ms: int,
        expires_ms: int | None,
        name: str | None,
        metadata: dict[str, str],
        source: str | None,
        owner: str,
    ) -> Self:
        """Converts a checkpoint of the compiled module."""
        return cls(
            UUID(id),
            manifest_id,
            moment(created_ms),
            None if expires_ms is None else moment(expires_ms),
            name,
            metadata,
            None if source is None else UUID(source),
            owner,
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON; times are text in ISO 8601."""
        return {
            "id": str(self.id),
            "manifest_id": self.manifest_id,
            "created": self.created.isoformat(),
            "expires": None if self.expires is None else self.expires.isoformat(),
            "name": self.name,
            "metadata": dict(self.metadata),
            "source": None if self.source is None else str(self.source),
            "owner": self.owner,
        }


CheckpointLike = Checkpoint | UUID | str
"""A checkpoint: itself, its id in any spelling, or its name."""


def name_of(checkpoint: CheckpointLike) -> str:
    """Returns the id or the name of a checkpoint, for the compiled module.

    :raises TypeError: if `checkpoint` is neither a Checkpoint, a UUID nor text.
    """
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.id.hex
    if isinstance(checkpoint, UUID):
        return checkpoint.hex
    if isinstance(checkpoint, str):
        return checkpoint
    kind = type(checkpoint).__name__
    raise TypeError(f"checkpoint must be a Checkpoint, a uuid.UUID or text, not {kind}")


def asked_for(
    scope: str,
    force_flush: bool,
    lifetime: Seconds | None,
    source: CheckpointLike | None,
    name: str | None,
    metadata: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Returns the arguments of a new checkpoint, for the compiled module.

    :raises TypeError: if `metadata` is not a mapping.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict of str to str, not {type(metadata).__name__}")
    return {
        "scope": scope,
        "force_flush": force_flush,
        "lifetime": lifetime,
        "source": source,
        "name": name,
        "metadata": None if metadata is None else dict(metadata),
    }


def read_at(checkpoint: CheckpointLike | None, version: int | None) -> str | int | None:
    """Returns the state that a reader reads, for the compiled module.

    :raises Invalid: if both are given, or the version is not a number of a manifest.
    :raises TypeError: if an argument has the wrong type.
    """
    if checkpoint is not None and version is not None:
        raise Invalid("give a checkpoint or a version, not both")
    if version is not None:
        return count_of(version, "version")
    return None if checkpoint is None else name_of(checkpoint)


def moment(millis: int) -> datetime:
    """Converts Unix milliseconds. A time after the last possible datetime becomes that datetime."""
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
