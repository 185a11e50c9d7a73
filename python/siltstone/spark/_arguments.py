"""Checks that a call got a session, a frame and a condition of the right kinds, in the right order.

Without them a wrong argument is an AttributeError from inside of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from siltstone.exceptions import Invalid

__all__ = ["check_frame", "check_session", "check_where"]


def check_session(spark: Any) -> None:
    """Checks that `spark` is a session, of the classic kind or of Spark Connect.

    :raises TypeError: it is something else, such as the URL of the database.
    """
    if not callable(getattr(spark, "createDataFrame", None)):
        raise TypeError(
            f"the first argument is the SparkSession, not {type(spark).__name__}: "
            "siltstone.spark.scan(spark, url), for example"
        )


def check_frame(df: Any) -> None:
    """Checks that `df` is a DataFrame of Spark.

    :raises TypeError: it is something else, such as a DataFrame of pandas.
    """
    if not hasattr(df, "mapInArrow"):
        raise TypeError(
            f"df is a DataFrame of Spark, not {type(df).__module__}.{type(df).__name__}: "
            "spark.createDataFrame(…) makes one from pandas, Arrow or rows"
        )


def check_where(where: Mapping[str, Any] | None) -> None:
    """Checks that `where` names columns and values.

    :raises Invalid: it is something else, such as the text of a condition.
    """
    if where is not None and not isinstance(where, Mapping):
        raise Invalid(
            f"where is {where!r}, and names the values of the first columns of the key, as in "
            'where={"country": "DE"}; for other conditions use filter(…) on the frame'
        )
