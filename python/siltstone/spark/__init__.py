"""Apache Spark: a database read as DataFrames at one checkpoint, and written from them.

``siltstone.spark.scan(spark, "s3://bucket/db")`` is a DataFrame of its rows, ``lookup`` a join with
it, ``get`` a column function; ``spark.read.format("siltstone").load("s3://bucket/db")`` is found
without registration. ``bulk_load`` writes a DataFrame into a database, from the executors, in one
commit; ``delete`` takes the keys of one away, ``upsert`` is for `foreachBatch`. Of a table
(`siltstone.table`) all of them have its columns. Everything goes through Arrow batches. Spark 3.5
and newer, Spark Connect too; ``pip install siltstone[spark]`` here and where the workers run.

Workers are processes of their own. They work with the credentials of their environment, or of the
function that `store_options` names: none travels with a job.
"""

from __future__ import annotations

from siltstone.spark._changes import changes
from siltstone.spark._commit import LoadResult
from siltstone.spark._compaction import CompactionResult, compact
from siltstone.spark._doctor import Doctor, Slot, doctor
from siltstone.spark._load import bulk_load, delete
from siltstone.spark._pins import release
from siltstone.spark._registration import register
from siltstone.spark._scan import get, lookup, scan
from siltstone.spark._upsert import upsert
from siltstone.spark._verify import TableProblem, Verified, verify

__all__ = [
    "CompactionResult",
    "Doctor",
    "LoadResult",
    "Slot",
    "TableProblem",
    "Verified",
    "bulk_load",
    "changes",
    "compact",
    "delete",
    "doctor",
    "get",
    "lookup",
    "register",
    "release",
    "scan",
    "upsert",
    "verify",
]
