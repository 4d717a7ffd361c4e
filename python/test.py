#!/usr/bin/env python3
"""The tests of the analysis of traces (python/frieze_traces), in a Python environment of their own.

    python/test.py
    python/test.py --where-possible    ends well, and says so, where the packages cannot be had; with FRIEZE_STRICT=1
                                       it fails there

Needs Python 3.10 or newer; its packages, PySpark among them, come from PyPI at the first run and stay in the user's
cache.
Spark is compared with DuckDB where there is a JDK. About 1 min.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import hadoop  # noqa: E402
import requirements  # noqa: E402

SECONDS_MAX = 1800


def pins():
    """The packages and their versions, from the files that `frieze analyze` installs from."""
    files = [HERE / "frieze_traces" / name for name in ["requirements.txt", "requirements-spark.txt"]]
    return [line for file in files for line in file.read_text().split() if not line.startswith("#")]


def main():
    """Runs all tests."""
    try:
        python = hadoop.python_with(*pins())
    except (subprocess.CalledProcessError, OSError) as error:
        if "--where-possible" not in sys.argv[1:]:
            sys.exit(f"python/test.py: the packages cannot be installed: {error}")
        requirements.skip("pypi", "packages of PyPI for the analysis of traces", "give pip a network")
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    tests = [
        python,
        "-m",
        "unittest",
        "discover",
        "--start-directory",
        "frieze_traces/tests",
        "--top-level-directory",
        ".",
    ]
    return subprocess.run(tests, cwd=HERE, env=environment, timeout=SECONDS_MAX).returncode


if __name__ == "__main__":
    sys.exit(main())
