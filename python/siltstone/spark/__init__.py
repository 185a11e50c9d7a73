"""Apache Spark: read a database as DataFrames at one checkpoint, and write DataFrames to it.

``siltstone.spark.scan(spark, "s3://bucket/db")`` is a DataFrame of the rows, `view` a view for SQL,
`count` their number, `lookup` a join, `get` a column function. ``spark.read.format("siltstone")``
needs no registration. In a block of `pinned` all reads are of one state. `bulk_load` writes a
DataFrame from the executors in one commit, `merge` changes the rows that match one,
`update_columns` sets some of their columns, `delete` deletes keys or a range, `upsert` is for
`foreachBatch`. `export_parquet` writes Parquet files, `changes` is the change feed, and
`encode_key` the stored key of a row. A table (`siltstone.table`) has its own columns in all of
them. All data moves as Arrow batches. Spark 3.5 and newer, also by Spark Connect. Run ``pip install
siltstone[spark]`` here and on the workers.

Workers are processes of their own. They use the credentials of their environment, or of the
function that `store_options` names. No credentials are sent with a job.
"""

from __future__ import annotations

from siltstone.spark._changes import changes
from siltstone.spark._commit import LoadResult
from siltstone.spark._compaction import CompactionResult, compact
from siltstone.spark._doctor import Doctor, Slot, doctor
from siltstone.spark._errors import worker_errors
from siltstone.spark._export import ParquetExport, export_parquet
from siltstone.spark._key_column import encode_key
from siltstone.spark._load import bulk_load, delete
from siltstone.spark._lookup import get, lookup
from siltstone.spark._merge import merge, update_columns
from siltstone.spark._pinned import PinnedState, pinned
from siltstone.spark._pins import release
from siltstone.spark._registration import register
from siltstone.spark._scan import count, scan, view
from siltstone.spark._upsert import upsert
from siltstone.spark._verify import TableProblem, Verified, verify

__all__ = [
    "CompactionResult",
    "Doctor",
    "LoadResult",
    "ParquetExport",
    "PinnedState",
    "Slot",
    "TableProblem",
    "Verified",
    "bulk_load",
    "changes",
    "compact",
    "count",
    "delete",
    "doctor",
    "encode_key",
    "export_parquet",
    "get",
    "lookup",
    "merge",
    "pinned",
    "register",
    "release",
    "scan",
    "update_columns",
    "upsert",
    "verify",
    "view",
    "worker_errors",
]
