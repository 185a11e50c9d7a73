"""The states that `versionAsOf` and `timestampAsOf` name, and the checkpoint that keeps them.

A frame must not show fewer rows than were durable at the moment that it names without a word. If
no kept state is exact, this raises an error that names the nearest one. If the log of the moment is
not kept any more, nothing tells how exact a version is: a warning names its time.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from siltstone import admin
from siltstone._checkpoints import Checkpoint
from siltstone.exceptions import Expired, Invalid, NotFound
from siltstone.spark._pins import pin

__all__ = ["Place", "at_time", "at_version"]

LOG = logging.getLogger("siltstone.spark")

TABLES = ("l0", "runs", "replay_from", "schema")
"""Fields that are equal in two manifests of the same tables."""


@dataclass(frozen=True)
class Place:
    """The state at which a reader is opened, and the checkpoint that keeps it."""

    lease: Checkpoint
    """The checkpoint that was made here."""
    version: int | None = None
    """The manifest whose tables are read; None: the state of the lease, log included."""


def at_version(url: str, version: int, store_options: str | None, lifetime: float) -> Place:
    """The state of a version: the tables of a manifest, and the log as far as a checkpoint of these
    tables holds it. The newest version is all that is durable now, as for `load()`.

    :raises NotFound: the version is not kept.
    """
    wanted = admin.manifest(url, version, store_options=store_options)
    newest = admin.manifest(url, store_options=store_options)["id"]
    lease = pin(url, store_options, lifetime)
    if version == newest:
        return Place(lease)
    for one in _later(url, version, lease, store_options):
        if not _same(url, wanted, one.manifest_id, store_options):
            continue
        with suppress(Expired):
            return Place(pin(url, store_options, lifetime, one))
    if _same(url, wanted, lease.manifest_id, store_options):
        return Place(lease)
    return Place(lease, version)


def _later(
    url: str, version: int, lease: Checkpoint, store_options: str | None
) -> list[Checkpoint]:
    """The checkpoints that pin this version or a later one, in their order, without `lease`."""
    kept = admin.list_checkpoints(url, processes=True, store_options=store_options)
    # Checkpoints of a writer end with its own reads.
    others = [one for one in kept if one.id != lease.id and one.owner != "writer"]
    others = [one for one in others if one.manifest_id >= version]
    # The commit that ended the version pins all that was durable then. The commit that made it pins
    # only earlier rows.
    return sorted(others, key=lambda one: (one.manifest_id == version, one.manifest_id))


def at_time(url: str, text: str, store_options: str | None, lifetime: float) -> Place:
    """The state of all rows that were committed by a moment.

    :param text: the moment, ISO 8601 with its zone.
    :raises Invalid: another text.
    :raises NotFound: the moment is before all kept versions.
    :raises Expired: no kept state is that of the moment.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Invalid(
            f"timestampAsOf is {text!r}: ISO 8601 with its zone, as 2026-03-01T12:00:00+00:00"
        )
    return _placed(url, moment, pin(url, store_options, lifetime), store_options)


def _placed(url: str, moment: datetime, lease: Checkpoint, store_options: str | None) -> Place:
    """The state of a moment.

    :param lease: a checkpoint of the state that is durable now.
    """
    if moment >= lease.created:
        return Place(lease)
    seq = admin.seq_at(url, moment, store_options=store_options)
    if seq == admin.seq_at(url, datetime.now(UTC), store_options=store_options):
        # Nothing was committed since.
        return Place(lease)
    versions = admin.versions(url, store_options=store_options)
    if seq == 0 and all(version.time > moment for version in versions):
        oldest = min(versions, key=lambda version: version.time)
        raise NotFound(
            f"timestampAsOf is {moment.isoformat()}, and no version of then is kept: the oldest "
            f"that is kept is version {oldest.id}, of {oldest.time.isoformat()}"
        )
    exact = [version for version in versions if version.seq == seq]
    if exact:
        wanted = admin.manifest(url, exact[-1].id, store_options=store_options)
        same = _same(url, wanted, lease.manifest_id, store_options)
        _tell_rounding(url, moment, exact[0], versions)
        # The lease keeps its own manifest and tables; it may hold more of the log.
        return Place(lease, lease.manifest_id if same else exact[-1].id)
    before = [version for version in versions if version.seq < seq]
    nearest = "no version before it is kept"
    if before:
        nearest = f"versionAsOf {before[-1].id} has those up to {before[-1].seq}"
    raise Expired(
        f"the rows up to number {seq} were committed by {moment.isoformat()}, the timestampAsOf, "
        "and no state that is kept ends there, because they lay in the log beside later ones; "
        f"{nearest}. A checkpoint keeps a state for later"
    )


def _tell_rounding(
    url: str, moment: datetime, chosen: admin.Version, versions: list[admin.Version]
) -> None:
    """Logs a warning if rows that were committed by a moment may lie in the next version only."""
    later = [version for version in versions if version.seq > chosen.seq]
    if versions[-1].time <= moment or not later:
        return  # The log covers the moment, or nothing was committed since.
    LOG.warning(
        "timestampAsOf is %s, and the log of that time is not kept: the frame of %s shows version "
        "%d, of %s. Rows that were committed after that and flushed with version %d, of %s, are "
        "not in it. A checkpoint keeps an exact state",
        moment.isoformat(),
        url,
        chosen.id,
        chosen.time.isoformat(),
        later[0].id,
        later[0].time.isoformat(),
    )


def _same(url: str, wanted: dict[str, Any], version: int, store_options: str | None) -> bool:
    """Whether a manifest has the same tables and the same beginning of the log."""
    try:
        other = admin.manifest(url, version, store_options=store_options)
    except NotFound:
        return False
    return all(wanted.get(name) == other.get(name) for name in TABLES)
