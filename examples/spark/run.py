#!/usr/bin/env python3
"""PySpark, unmodified, on frieze: a task for each of a hundred instants of a directory that is being written; tables of now and of then.

    examples/spark/run.py                with the release build; builds it first
    examples/spark/run.py --frieze PATH  with that command
    examples/spark/run.py --json         one JSON document instead of lines

Starts a frieze server with the HDFS gateway, sensors that write through Hadoop's client (Writer.java), and PySpark programs (grid.py,
tables.py). Holds what they find to what the sensors were told; ends everything that it started, and itself with 1 if anything differs.
Needs a JDK (17); PySpark comes from PyPI at the first run and stays in the user's cache. README.md says more.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop

VERSION = "3.5.6"
SENSORS, PAUSE_MS = 10, 100
INSTANTS, STEP_US = 100, 100_000
DIRECTORY = "/grid"
# Both programs together end by then.
SECONDS_MAX = 165


def environment():
    """A virtual environment with PySpark, in the user's cache; made once."""
    python = hadoop.python_with(f"pyspark=={VERSION}")
    return python, next(python.parent.parent.glob("lib/python*/site-packages/pyspark/jars"))


class Sensors:
    """The writer and its output: the states of each file, each with the time of its request and of its acknowledgement."""

    def __init__(self, classes, jars, url, work):
        words = ["java", "-Xmx256m", "-cp", f"{classes}:{jars}/*", "Writer", url, DIRECTORY, str(SENSORS), str(PAUSE_MS)]
        self.log = work / "writer.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.states, self.changes = {}, 0
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            name, *numbers = line.split()
            self.states.setdefault(name, []).append(tuple(map(int, numbers)))
            self.changes += 1

    def await_changes(self, count):
        until = time.monotonic() + 60
        while self.changes < count:
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the sensors do not write:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.thread.join()
        return self.process.returncode

    def may_be(self, name, at_us):
        """The states, as (rows, sum), of which a file must have one at an instant: the last acknowledged one, or one under way."""
        may = [None]
        for begun, ended, rows, total in self.states.get(name, []):
            state = None if rows < 0 else (rows, total)
            if ended <= at_us:
                may = [state]
            elif begun <= at_us:
                may.append(state)
        return may


def submit(python, work, url, program, until, *arguments):
    """Runs a program of Spark's on this machine; what it printed."""
    options = {
        "spark.master": "local[2]",
        "spark.driver.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.defaultFS": url,
        "spark.local.dir": work / "spark",
        "spark.sql.warehouse.dir": work / "warehouse",
    }
    conf = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    command = [python.parent / "spark-submit", *conf, HERE / program, url, *map(str, arguments)]
    with open(work / f"{program}.log", "ab") as log:
        # A session of its own: spark-submit starts a JVM that starts Python, and all of them end.
        environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=work, env=environment, start_new_session=True)
        try:
            said = process.communicate(timeout=until - time.monotonic())[0]
        except subprocess.TimeoutExpired:
            said = "it did not end in time"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    if process.returncode != 0:
        sys.exit(f"{program}: {said}\n{(work / f'{program}.log').read_text()[-4000:]}")
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def judge(sensors, found):
    """Compares what was found at each instant with what was acknowledged: files compared, files of which a change was under way."""
    compared, under_way = 0, 0
    for result in found["results"]:
        at_us = result["at_us"]
        for name in set(sensors.states) | set(result["files"]):
            held = result["files"].get(name)
            may = sensors.may_be(name, at_us)
            if (None if held is None else tuple(held)) not in may:
                sys.exit(f"at {at_us} {name} holds {held}, where {may} was acknowledged or under way")
            compared += held is not None
            under_way += len(may) > 1
    if found["whole_differ"]:
        sys.exit(f"a directory read whole at an instant differs: {found['whole_differ'][0]}")
    return compared, under_way


def run(python, jars, frieze, ready, work, report):
    url, server = ready["hdfs"], ready["addresses"][0]
    until = time.monotonic() + SECONDS_MAX
    for line in submit(python, work, url, "tables.py", until):
        report.step(line["holds"])
    classes = work / "classes"
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, HERE / "Writer.java"], check=True)
    sensors = Sensors(classes, jars, url, work)
    try:
        sensors.await_changes(20 * SENSORS)
        out = work / "found.json"
        first_us = time.time_ns() // 1000
        submit(python, work, url, "grid.py", until, DIRECTORY, first_us, INSTANTS, STEP_US, out, frieze, server)
        changes_until = sensors.changes
    finally:
        ended = sensors.stop()
    if ended != 0:
        sys.exit(f"the sensors ended with {ended}:\n{sensors.log.read_text()[-2000:]}")
    found = json.loads(out.read_text())
    compared, under_way = judge(sensors, found)
    report.step(
        f"{INSTANTS} instants, {STEP_US // 1000} ms from one to the next, of {SENSORS} sensors that write: each as acknowledged",
        changes=changes_until,
        files_compared=compared,
        of_which_under_way=under_way,
    )
    report.step(
        "what instants share was read once",
        files_of_all_instants=found["files_of_all_instants"],
        files_read=found["versions_read"],
        kib_read=found["bytes_read"] >> 10,
        plan_s=found["plan_s"],
        job_s=found["job_s"],
    )
    report.step("the same by DataFrames of the whole directory", instants=found["whole"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default=None, help="the command (default: the release build)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    hadoop.end_orderly()
    hadoop.needs("examples/spark", "java", "javac")
    frieze = os.path.abspath(hadoop.command(options.frieze))
    python, jars = environment()
    report = hadoop.Report(options.json, {"pyspark": VERSION})
    with tempfile.TemporaryDirectory(prefix="frieze-spark-") as work:
        work = pathlib.Path(work)
        with hadoop.served(frieze, work, "--memory", "1024") as ready:
            run(python, jars, frieze, ready, work, report)
    report.end("every table and every instant is as it was acknowledged")


if __name__ == "__main__":
    main()
