"""Tables on frieze by Spark as it comes: Parquet and CSV written, read, replaced, appended to; and read as they were.

    spark-submit tables.py HDFS-URL
"""

import datetime
import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

ROWS = 20_000


def table(spark, round_):
    """The flights of a round: what they hold is known from their numbers."""
    flights = spark.range(ROWS * round_).withColumnRenamed("id", "flight")
    return flights.withColumn("day", f.col("flight") % 3).withColumn("delay", (f.col("flight") * 37 + round_) % 181)


def sums(frame):
    found = frame.agg(f.count("*"), f.sum(f.col("flight") * 7 + f.col("delay") * 3 + f.col("day")), f.countDistinct("day")).first()
    return list(found)


def wanted(round_):
    rows = ROWS * round_
    return [rows, sum(flight * 7 + (flight * 37 + round_) % 181 * 3 + flight % 3 for flight in range(rows)), 3]


def now_us():
    return time.time_ns() // 1000


def check(words, found, want):
    if found != want:
        sys.exit(f"tables: {words}: {found} instead of {want}")
    print(json.dumps({"holds": words}), flush=True)


def read(spark, base):
    """The three tables under a path, each as one frame."""
    schema = "flight long, day long, delay long"
    return {
        "Parquet": spark.read.parquet(f"{base}/tables/plain"),
        "Parquet by day": spark.read.parquet(f"{base}/tables/by-day"),
        "CSV": spark.read.csv(f"{base}/tables/csv", schema=schema, header=True),
    }


def write(spark, base, round_):
    frame = table(spark, round_).repartition(2)
    frame.write.parquet(f"{base}/tables/plain", mode="overwrite")
    frame.write.partitionBy("day").parquet(f"{base}/tables/by-day", mode="overwrite")
    frame.write.csv(f"{base}/tables/csv", header=True, mode="overwrite")


def main():
    url = sys.argv[1]
    spark = SparkSession.builder.appName("tables").getOrCreate()
    write(spark, url, 1)
    made_us = now_us()
    for name, frame in read(spark, url).items():
        check(f"{name} is written and read", sums(frame), wanted(1))
    # Some seconds in which nothing changes, for a name that is exact to the second.
    while (at_us := now_us()) < made_us + 4_000_000:
        time.sleep(0.05)
    write(spark, url, 2)
    table(spark, 1).write.parquet(f"{url}/tables/plain", mode="append")
    both = [found + more for found, more in zip(wanted(1), wanted(2))]
    check("Parquet is appended to", sums(spark.read.parquet(f"{url}/tables/plain"))[:2], both[:2])

    at = datetime.datetime.fromtimestamp(at_us // 1_000_000, datetime.timezone.utc)
    for name, frame in read(spark, f"{url}/.at/{at:%Y%m%dT%H%M%S}.{at_us % 1_000_000:06}Z").items():
        check(f"{name} of the past is what it was before it was replaced", sums(frame), wanted(1))
    # Whole seconds that lead between two and three seconds before that, with room for how long it takes until the server is asked.
    ago = 2 - (at_us - now_us()) // 1_000_000
    check(f".at/{ago}s-ago is a table too", sums(spark.read.parquet(f"{url}/.at/{ago}s-ago/tables/by-day")), wanted(1))
    try:
        table(spark, 1).write.parquet(f"{url}/.at/{ago}s-ago/tables/plain", mode="append")
    except Exception as refused:
        if "SnapshotAccessControlException" not in str(refused):
            raise
        print(json.dumps({"holds": "the past cannot be written"}), flush=True)
    else:
        sys.exit("tables: the past was written")
    spark.stop()


if __name__ == "__main__":
    main()
