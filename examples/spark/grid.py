"""An analysis of a directory at a hundred instants, with a task for each: what the paper on the Freeze-Frame File System draws in figure 2.

    spark-submit grid.py HDFS-URL DIRECTORY FIRST_US COUNT STEP_US OUT.json FRIEZE SERVER

PySpark as it comes. Paths name the past: hdfs://HOST:PORT/.at/INSTANT/DIRECTORY. What two instants share is read once: `frieze diff` between
neighbours says from its index of time which files changed, and an instant needs nothing more than those of them that are its own.
"""

import datetime
import json
import subprocess
import sys
import time

from pyspark.sql import SparkSession


def instant(us):
    """An instant as paths have it: no colons."""
    at = datetime.datetime.fromtimestamp(us // 1_000_000, datetime.timezone.utc)
    return f"{at:%Y%m%dT%H%M%S}.{us % 1_000_000:06}Z"


def path_at(url, at_us, directory):
    return f"{url}/.at/{instant(at_us)}{directory}"


def names(spark, url, at_us, directory):
    """What a directory lists at an instant, by Hadoop's own client."""
    path = spark._jvm.org.apache.hadoop.fs.Path(path_at(url, at_us, directory))
    fs = path.getFileSystem(spark._jsc.hadoopConfiguration())
    return {status.getPath().getName() for status in fs.listStatus(path)}


def plan(spark, url, directory, instants, frieze, server):
    """For each instant, which version of each file it has; a version is a name and the instant at which it was first seen so."""

    def inside(entry):
        path = (entry or {}).get("path", "")
        return path[len(directory) + 1 :] if path.startswith(directory + "/") else None

    state = {name: (name, instants[0]) for name in names(spark, url, instants[0], directory)}
    states = [dict(state)]
    for before, at in zip(instants, instants[1:]):
        command = [frieze, "--server", server, "diff", directory, "--json", "--from", instant(before), "--to", instant(at)]
        changes = [json.loads(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()]
        for change in changes:
            state.pop(inside(change["before"]), None)
        for change in changes:
            name = inside(change["after"])
            if name is not None:
                state[name] = (name, at)
        states.append(dict(state))
    return states


def of_file(text):
    """What an analysis needs of a file: rows, the sum of their values, the lowest and the highest."""
    values = [int(line.rsplit(",", 1)[1]) for line in text.splitlines()]
    return len(values), sum(values), min(values, default=None), max(values, default=None)


def analyse(at_us, state, known):
    """The task of an instant: is the grid stable?"""
    files = {name: known[version] for name, version in state.items()}
    rows = sum(found[0] for found in files.values())
    low = min((found[2] for found in files.values() if found[2] is not None), default=None)
    high = max((found[3] for found in files.values() if found[3] is not None), default=None)
    mean = sum(found[1] for found in files.values()) / rows if rows else None
    held = {name: found[:2] for name, found in files.items()}
    return {"at_us": at_us, "rows": rows, "mean": mean, "low": low, "high": high, "files": held}


def read_versions(spark, url, directory, versions):
    """Reads each version once, in tasks of Spark's."""
    at = {f"{instant(first)}/{name}": (name, first) for name, first in versions}
    paths = ",".join(path_at(url, first, directory) + "/" + name for name, first in versions)

    def version_of(path):
        parts = path.split("/")
        return f"{parts[parts.index('.at') + 1]}/{parts[-1]}"

    read = spark.sparkContext.wholeTextFiles(paths, minPartitions=8)
    found = read.map(lambda pair: (version_of(pair[0]), len(pair[1]), of_file(pair[1]))).collect()
    return {at[key]: values for key, _, values in found}, sum(size for _, size, _ in found)


def whole(spark, url, directory, at_us):
    """The same of one instant by DataFrames, without sharing: to compare."""
    from pyspark.sql import functions as f

    table = spark.read.csv(path_at(url, at_us, directory), schema="at_us long, sensor int, millihertz long")
    found = table.agg(f.count("*"), f.avg("millihertz"), f.min("millihertz"), f.max("millihertz")).first()
    return dict(zip(["rows", "mean", "low", "high"], found))


def main():
    url, directory, first_us, count, step_us, out, frieze, server = sys.argv[1:]
    instants = [int(first_us) + number * int(step_us) for number in range(int(count))]
    spark = SparkSession.builder.appName("grid").getOrCreate()
    while time.time_ns() // 1000 <= instants[-1]:
        time.sleep(0.05)
    begun = time.monotonic()
    states = plan(spark, url, directory, instants, frieze, server)
    planned = time.monotonic()
    versions = sorted({version for state in states for version in state.values()})
    known, size = read_versions(spark, url, directory, versions)
    shared = spark.sparkContext.broadcast(known)
    tasks = spark.sparkContext.parallelize(list(zip(instants, states)), len(instants))
    results = tasks.map(lambda task: analyse(*task, shared.value)).collect()
    ended = time.monotonic()
    compared = [(result, whole(spark, url, directory, result["at_us"])) for result in results[:: len(results) // 4]]
    differ = [pair for pair in compared if any(pair[0][name] != value for name, value in pair[1].items())]
    document = {
        "results": results,
        "versions_read": len(versions),
        "bytes_read": size,
        "files_of_all_instants": sum(map(len, states)),
        "plan_s": round(planned - begun, 2),
        "job_s": round(ended - planned, 2),
        "whole": len(compared),
        "whole_differ": differ,
    }
    with open(out, "w") as file:
        json.dump(document, file)
    spark.stop()


if __name__ == "__main__":
    main()
