"""Spark and DuckDB give the same tables: counts and sums to the last digit, quotients within 1e-9."""

import importlib.util
import os
import pathlib
import shutil
import tempfile
import unittest

from .. import pipeline, report
from . import traces

# Stages whose rows are compared, with the columns that identify a row.
TABLES = {
    "check": ["trace"],
    "names": ["file", "path"],
    "streams": ["trace", "file", "actor", "stream"],
    "files": ["file"],
    "write_purposes": ["file"],
    "io": ["minute", "call", "gateway", "purpose", "label", "failed"],
    "seconds": ["second", "what"],
    "durations": ["call", "gateway", "bucket"],
    "runs": ["trace", "file", "stream_key", "side"],
    "data": ["kind", "family", "gone", "heat", "written", "core"],
    "nearby": ["distance", "slot"],
}
EVENTS = int(os.environ.get("FRIEZE_SPARK_EVENTS", "200000"))


def missing():
    """What Spark needs and this machine lacks, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    return None if shutil.which("java") else "there is no Java"


class Engines(unittest.TestCase):
    """One trace, both engines."""

    def test_spark_equals_duckdb(self):
        lacks = missing()
        if lacks and os.environ.get("FRIEZE_STRICT") == "1":
            self.fail(f"Spark is not compared: {lacks}")
        if lacks:
            self.skipTest(f"Spark is not compared: {lacks}")
        events, paths, _ = traces.database(EVENTS)
        # Some events twice, so that the way without duplicates is compared too.
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(pathlib.Path(work) / "trace", events + events[:50], paths)
            found = {}
            for engine in ["duckdb", "spark"]:
                opened, facts, stages = pipeline.analyze(
                    [trace], f"{work}/{engine}", engine=engine, tell=lambda words: None
                )
                tables = {name: stages.rows(name).to_pylist() for name in TABLES}
                made = report.figures(report.tables_of(opened, facts, stages, 3, None))
                found[engine] = (facts, tables, {figure.name: figure.rows for figure in made})
        duck, spark = found["duckdb"], found["spark"]
        self.assertEqual(duck[0], spark[0])
        self.assertEqual(duck[0]["duplicates"], 50)
        for name, keys in TABLES.items():
            with self.subTest(table=name):
                one, other = (
                    {tuple(row[key] for key in keys): row for row in engine[1][name]} for engine in (duck, spark)
                )
                self.assertEqual(len(one), len(duck[1][name]), "the key identifies a row")
                self.assertEqual(one, other)
        for name, tables in duck[2].items():
            for table, rows in tables.items():
                with self.subTest(figure=name, table=table):
                    others = spark[2][name][table]
                    self.assertEqual(len(rows), len(others))
                    for row, other in zip(rows, others):
                        self.same(row, other)

    def same(self, row, other):
        """Equal words and whole numbers; quotients within 1e-9 of each other."""
        self.assertEqual(row.keys(), other.keys())
        for name, value in row.items():
            if isinstance(value, float):
                self.assertLessEqual(abs(value - other[name]), 1e-9 * max(1.0, abs(value)), name)
            else:
                self.assertEqual(value, other[name], name)


if __name__ == "__main__":
    unittest.main()
