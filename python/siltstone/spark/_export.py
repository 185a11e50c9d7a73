"""Exporting a database to Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from siltstone._checkpoints import CheckpointLike
from siltstone._open import StoreOptionsSource, Url
from siltstone.merging import MergeOperatorSource
from siltstone.options import Options
from siltstone.spark._arguments import check_session
from siltstone.spark._jobs import described
from siltstone.spark._pins import kept_for_a_call
from siltstone.spark._scan import scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ParquetExport", "export_parquet"]

PATH_EXISTS = "[PATH_ALREADY_EXISTS]"
"""The error class with which the text of Spark's error begins if the folder exists."""

MUST_NOT_EXIST = ("errorifexists", "error", "default")
"""Save modes that fail if the folder exists."""


@dataclass(frozen=True)
class ParquetExport:
    """The result of an export."""

    path: str
    """The folder of the files."""
    rows: int
    """Rows that were written: 0 if the mode is "ignore" and there is a folder."""


def export_parquet(
    spark: SparkSession,
    url: Url,
    path: str,
    *,
    checkpoint: CheckpointLike | None = None,
    where: Mapping[str, Any] | None = None,
    start: Any = None,
    end: Any = None,
    prefix: bytes | str | None = None,
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    mode: str = "errorifexists",
    compression: str | None = None,
    as_bytes: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> ParquetExport:
    """Writes the rows of a database, or of a range of keys, to Parquet files. All rows are of one
    state. Each file has the rows of one key range in key order.

    Spark writes the files, so `path` is a path that Spark resolves. It adds the file `_SUCCESS`
    when all files are complete.

    :param path: the folder of the files.
    :param checkpoint, where, start, end, prefix, columns, as_bytes: as for `scan`.
    :param partitions: number of files, as for `scan`.
    :param mode: Spark's save mode for `path`: "errorifexists" (or "error"), "overwrite", "append"
        or "ignore".
    :param compression: Spark's codec for Parquet; None: that of the session.
    :param options, store_options, merge_operator: as for `scan`.
    :raises Invalid, Unsupported, NotFound, Expired, Denied, Unavailable, Corruption: as `scan`.
    """
    check_session(spark)
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - pyspark is an extra
    from pyspark.sql import Observation  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415

    with kept_for_a_call(url, checkpoint, store_options) as at:
        frame = scan(
            spark,
            url,
            checkpoint=at,
            where=where,
            start=start,
            end=end,
            prefix=prefix,
            columns=columns,
            partitions=partitions,
            as_bytes=as_bytes,
            options=options,
            store_options=store_options,
            merge_operator=merge_operator,
        )
        text = f"siltstone: export {url} to {path}"
        ignores = mode.casefold() == "ignore"
        # With "ignore" Spark runs no job if the folder exists, and the observation would never end.
        # Spark Connect has no other name for "error".
        saved = "error" if ignores or mode.casefold() in MUST_NOT_EXIST else mode
        counted = Observation()
        observed = frame.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        try:
            with described(spark, text):
                observed.write.parquet(path, mode=saved, compression=compression)
        except AnalysisException as error:
            if not ignores or PATH_EXISTS not in str(error):
                raise
            return ParquetExport(path, 0)
        return ParquetExport(path, int(counted.get["rows"]))
