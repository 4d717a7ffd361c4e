"""The two engines behind Ibis: DuckDB in this process, and Spark for traces that outgrow it.

An engine reads Parquet, and writes the result of a stage as Parquet. Everything between is Ibis, the same for both.
"""

import importlib.util
import os
import pathlib
import shutil

import ibis

from .contract import TraceError

# Of DuckDB: beyond it sorts and groups spill into the output directory.
MEMORY_DEFAULT = "4GB"


def connect(name, scratch, memory=MEMORY_DEFAULT):
    """The engine of this name; `scratch` is a directory for what does not fit into memory."""
    return {"duckdb": Duck, "spark": Spark}[name](scratch, memory)


class Duck:
    """DuckDB, embedded."""

    name = "duckdb"

    def __init__(self, scratch, memory):
        self.connection = ibis.duckdb.connect()
        quoted = str(scratch).replace("'", "''")
        self._run(
            f"SET memory_limit='{memory}'", f"SET temp_directory='{quoted}'", "SET preserve_insertion_order=false"
        )
        self._run(f"SET threads={len(os.sched_getaffinity(0))}", "SET enable_progress_bar=false")

    def _run(self, *statements):
        for statement in statements:
            self.connection.raw_sql(statement)

    def read(self, files):
        """The rows of these Parquet files; the names of their directories are no columns."""
        return self.connection.read_parquet([str(file) for file in files], hive_partitioning=False)

    def write(self, table, folder):
        """Computes the table into Parquet in a new folder."""
        # A sum of 64-bit numbers is of 128 bits in DuckDB, which Parquet has not: it would become a float.
        columns = ", ".join(
            f'CAST("{name}" AS BIGINT) AS "{name}"' if kind.is_int64() else f'"{name}"'
            for name, kind in table.schema().items()
        )
        folder.mkdir(parents=True)
        quoted = str(folder / "part-0.parquet").replace("'", "''")
        query = f"SELECT {columns} FROM ({self.connection.compile(table)})"
        self._run(f"COPY ({query}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")

    def close(self):
        """Ends the connection."""
        self.connection.disconnect()


class Spark:
    """PySpark: a session on this machine, or on the cluster that SPARK_MASTER names."""

    name = "spark"

    def __init__(self, scratch, memory):
        for need, found in [("pyspark", importlib.util.find_spec("pyspark")), ("java", shutil.which("java"))]:
            if found is None:
                pins = pathlib.Path(__file__).parent / "requirements-spark.txt"
                text = {"pyspark": f"pip install -r {pins}", "java": "a JDK of version 17 (openjdk-17-jre-headless)"}
                raise TraceError(f"--engine spark needs {need}, which is missing: {text[need]}")
        from pyspark.sql import SparkSession

        cores = len(os.sched_getaffinity(0))
        builder = SparkSession.builder.appName("frieze-traces").master(
            os.environ.get("SPARK_MASTER", f"local[{cores}]")
        )
        settings = {
            "spark.ui.enabled": "false",
            "spark.local.dir": str(scratch),
            "spark.driver.memory": memory.lower().removesuffix("b"),
            "spark.sql.shuffle.partitions": str(2 * cores),
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": "false",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.session = builder.getOrCreate()
        self.connection = ibis.pyspark.connect(self.session)
        self.tables = 0

    def read(self, files):
        """The rows of these Parquet files."""
        self.tables += 1
        name = f"read_{self.tables}"
        self.session.read.parquet(*(str(file) for file in files)).createOrReplaceTempView(name)
        return self.connection.table(name)

    def write(self, table, folder):
        """Computes the table into Parquet in a new folder."""
        self.session.sql(self.connection.compile(table)).write.parquet(str(folder))

    def close(self):
        """Ends the session."""
        self.session.stop()
