"""Checkpoints: states of a database that stay readable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from siltstone.exceptions import Invalid
from siltstone.options import Seconds

__all__ = ["Checkpoint", "CheckpointLike", "asked_for", "moment", "name_of", "read_at"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state of a database that any process can read, with ``open_reader(url, checkpoint=…)``,
    until it is deleted or its time is over. Plain values: it pickles, and holds nothing open.
    """

    id: UUID
    """Its identity, for good: a name may be that of another one tomorrow."""
    manifest_id: int
    """The manifest that it pins."""
    created: datetime
    """When it was made, by its maker's clock."""
    expires: datetime | None = None
    """When it may be collected; None: never. It lives until that is done, and can be refreshed."""
    name: str | None = None
    """A name to find it by."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Facts that its maker attached."""
    source: UUID | None = None
    """The checkpoint whose state it keeps as well."""
    owner: str = "user"
    """Who keeps it: "user", "clone", or a process for its own reads, "writer" or "reader"."""

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
        """Of what the compiled part gives."""
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
        """As plain values, for JSON: times as text of ISO 8601."""
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
"""Wherever a checkpoint is asked for: itself, its id in any spelling, or its name."""


def name_of(checkpoint: CheckpointLike) -> str:
    """The text that the compiled part understands: an id, or a name.

    :raises TypeError: for anything else.
    """
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.id.hex
    if isinstance(checkpoint, UUID):
        return checkpoint.hex
    if isinstance(checkpoint, str):
        return checkpoint
    kind = type(checkpoint).__name__
    raise TypeError(f"a checkpoint is a Checkpoint, a uuid.UUID or text, not {kind}")


def asked_for(
    scope: str,
    force_flush: bool,
    lifetime: Seconds | None,
    source: CheckpointLike | None,
    name: str | None,
    metadata: Mapping[str, str] | None,
) -> dict[str, Any]:
    """A checkpoint to be made, as the compiled part takes it."""
    return {
        "scope": scope,
        "force_flush": force_flush,
        "lifetime": lifetime,
        "source": source,
        "name": name,
        "metadata": None if metadata is None else dict(metadata),
    }


def read_at(checkpoint: CheckpointLike | None, version: int | None) -> str | int | None:
    """Where a reader is to stay, as the compiled part takes it.

    :raises Invalid: both are given.
    :raises TypeError: for what is neither.
    """
    if checkpoint is not None and version is not None:
        raise Invalid("a reader stays at a checkpoint or at a version, not at both")
    if isinstance(version, bool) or not isinstance(version, int | None):
        kind = type(version).__name__
        raise TypeError(f"version is the number of a manifest, not {kind}")
    return version if checkpoint is None else name_of(checkpoint)


def moment(millis: int) -> datetime:
    """A time of the compiled part; beyond what dates hold it is as good as the last of them."""
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
