#!/usr/bin/env python3
"""The Hadoop client that is not Java, hdfs-native (Rust, here by its Python module, and by fsspec), on a server of its own: what
native_clients.py does has to hold.

    tests/hdfs/native.py               with the debug build; builds it first
    tests/hdfs/native.py --frieze PATH with that command

Needs pip; the module comes from PyPI at the first run and stays in the user's cache.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop  # noqa: E402

PACKAGES = ["hdfs-native==0.14.7", "fsspec==2026.9.0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default=None, help="the command (default: the debug build)")
    frieze = hadoop.command(parser.parse_args().frieze, "debug")
    with tempfile.TemporaryDirectory(prefix="frieze-native-") as work:
        work = pathlib.Path(work)
        with hadoop.served(frieze, work) as ready:
            status = subprocess.run([hadoop.python_with(*PACKAGES), HERE / "native_clients.py", ready["hdfs"], frieze, ready["addresses"][0]]).returncode
            if status != 0:
                sys.exit(f"tests/hdfs: hdfs-native ended with {status}")
    print("hdfs-native: everything holds")


if __name__ == "__main__":
    main()
