"""Checks that a call got a session, a frame, a condition and an expiry of the right kinds, in the
right order.

Without them a wrong argument is an AttributeError from inside of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import siltstone
from siltstone import _native
from siltstone.exceptions import Invalid
from siltstone.options import Seconds

__all__ = ["MOST_TASKS", "check_frame", "check_session", "check_where", "check_writer", "expiry"]

MOST_TASKS = (1 << 31) - 1
"""Greatest number of tasks that Spark can count."""


def check_session(spark: Any) -> None:
    """Checks that `spark` is a session, of the classic kind or of Spark Connect.

    :raises TypeError: it is something else, such as the URL of the database.
    :raises Invalid: it was stopped.
    """
    if not callable(getattr(spark, "createDataFrame", None)):
        raise TypeError(
            f"the first argument is the SparkSession, not {type(spark).__name__}: "
            "siltstone.spark.scan(spark, url), for example"
        )
    _check_running(spark)


def check_frame(df: Any) -> None:
    """Checks that `df` is a DataFrame of Spark.

    :raises TypeError: it is something else, such as a DataFrame of pandas.
    :raises Invalid: its session was stopped.
    """
    if not hasattr(df, "mapInArrow"):
        raise TypeError(
            f"df is a DataFrame of Spark, not {type(df).__module__}.{type(df).__name__}: "
            "spark.createDataFrame(…) makes one from pandas, Arrow or rows"
        )
    _check_running(getattr(df, "sparkSession", None))


def _check_running(spark: Any) -> None:
    """Checks that a session was not stopped.

    :raises Invalid: it was.
    """
    # A session by Spark Connect tells it, and has no context.
    stopped = getattr(spark, "is_stopped", False)
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        try:
            _ = context.version
        except AttributeError:
            # A context that was stopped has no JVM to ask.
            stopped = True
    if stopped is True:
        raise Invalid("the session of Spark was stopped: make a new one, and its frames again")


def check_where(where: Mapping[str, Any] | None) -> None:
    """Checks that `where` names columns and values.

    :raises Invalid: it is something else, such as the text of a condition.
    """
    if where is not None and not isinstance(where, Mapping):
        raise Invalid(
            f"where is {where!r}, and names the values of the first columns of the key, as in "
            'where={"country": "DE"}; for other conditions use filter(…) on the frame'
        )


def check_writer(db: Any) -> None:
    """Checks that `db` is an open writer, or None.

    :raises TypeError: it is something else, such as the URL of the database.
    :raises Closed: the writer was closed.
    """
    if db is None:
        return
    if not isinstance(db, siltstone.Database):
        raise TypeError(
            f"db must be the open writer, the result of siltstone.open, not {type(db).__name__}"
        )
    # Raises Closed. A closed writer would take no job in after all tasks have run.
    db._schema()  # noqa: SLF001 - this package's own


def expiry(
    ttl: Seconds | None, expire_at: datetime | str | None
) -> tuple[str | None, datetime | None]:
    """The column of expiry times, and the time at which all rows expire.

    :raises Invalid: both arguments are given; `ttl` is not positive.
    :raises TypeError: the time has no time zone.
    """
    if ttl is not None:
        if expire_at is not None:
            raise Invalid("ttl and expire_at exclude each other")
        seconds = _native.seconds_of_duration(ttl, "ttl")
        if seconds <= 0:
            raise Invalid(f"ttl is {ttl!r}: a duration above 0")
        # Computed once, so that a repeated task writes the same.
        return None, datetime.now(UTC) + timedelta(seconds=seconds)
    if expire_at is None or isinstance(expire_at, str):
        return expire_at, None
    if expire_at.utcoffset() is None:
        raise TypeError("expire_at must have a time zone, such as datetime.now(UTC)")
    return None, expire_at
