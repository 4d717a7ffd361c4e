#!/usr/bin/env python3
"""Reads and listings in Python beside the Rust client (crates/client/examples/speed.rs), in one run on one server.

    bench/python.py --frieze target/release/frieze
    bench/python.py --frieze COMMAND --mib 256 --names 20000 --rounds 3

Each round runs every row once, in turn; a figure is the median. The ratio is the Rust client's time by Python's: 1 is
as fast, 0.5 takes twice as long. A table of Parquet is set beside the same table from a local file, since decoding it
takes longer than reading it. Goals: 0.85 for whole reads, 0.5 for names. Needs what python/wheel_test.py needs; the
wheel is a release build.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "scripts")]

import hadoop  # noqa: E402
import wheel_test  # noqa: E402

GOALS = {"read": 0.85, "parquet": 0.85, "names": 0.5}


class RustClient:
    """The Rust client, in a process that works once for each line."""

    def __init__(self, server, work, path):
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        command = [pathlib.Path(target) / "release/examples/speed", server, work, path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        nanoseconds, count = self.process.stdout.readline().split()
        return int(nanoseconds) / 1e9, int(count)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def timed(work):
    """A row of Python: seconds and count."""

    def run():
        begin = time.perf_counter()
        count = work()
        return time.perf_counter() - begin, count

    return run


def pieces(file, size):
    buffer, count = memoryview(bytearray(size)), 0
    while got := file.readinto(buffer):
        count += got
    return count


def measure(server, options):
    """Runs within the environment of the wheel."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    import frieze
    from frieze.fsspec import FriezeFileSystem

    fs, files = frieze.connect(server), FriezeFileSystem(server)
    rows = options.mib << 17
    table = pyarrow.table({f"c{index}": numpy.random.default_rng(index).random(rows // 8) for index in range(8)})
    # Plain columns: what is compared is reading, not decompressing.
    pyarrow.parquet.write_table(table, "/table", filesystem=files, compression="none", use_dictionary=False)
    pyarrow.parquet.write_table(table, "table", compression="none", use_dictionary=False)
    del table
    fs.mkdir("/names")
    for index in range(options.names):
        fs.write_bytes(f"/names/{index:07}", b"")

    def opened(read):
        with fs.open("/table", "rb") as file:
            return read(file)

    def parquet(path, **where):
        return pyarrow.parquet.read_table(path, **where).nbytes

    read, names, attributes = "read", "names", "attributes"
    work = {
        "Rust: the whole file at once": (read, RustClient(server, "read", "/table")),
        "Rust: piece by piece, one buffer": ("stream", RustClient(server, "stream", "/table")),
        "fs.open(path, 'rb').read()": (read, timed(lambda: opened(lambda file: len(file.read())))),
        "file.readinto, 1 MiB": ("stream", timed(lambda: opened(lambda file: pieces(file, 1 << 20)))),
        "file.read(64 KiB)": (
            "stream",
            timed(lambda: opened(lambda file: sum(len(piece) for piece in iter(lambda: file.read(65536), b"")))),
        ),
        "fsspec: cat_file": (read, timed(lambda: len(files.cat_file("/table")))),
        "pyarrow.parquet.read_table": ("parquet", timed(lambda: parquet("/table", filesystem=files))),
        "the same table from a local file": (None, timed(lambda: parquet("table"))),
        "Rust: names": (names, RustClient(server, "names", "/names")),
        "Rust: names with attributes": (attributes, RustClient(server, "attributes", "/names")),
        "fs.listdir": (names, timed(lambda: len(fs.listdir("/names")))),
        "list(fs.scandir)": (attributes, timed(lambda: len(list(fs.scandir("/names"))))),
        "fsspec: ls, detail=True": (attributes, timed(lambda: len(files.ls("/names")))),
        "fs.names (Arrow)": (attributes, timed(lambda: fs.names("/names").num_rows)),
    }
    seconds = {name: [] for name in work}
    for _ in range(options.rounds):
        for name, (_, run) in work.items():
            took, count = run()
            assert count >= min(options.mib << 20, options.names), (name, count)
            seconds[name].append(took)
    medians = {name: statistics.median(took) for name, took in seconds.items()}
    ceilings = {
        "read": medians["Rust: the whole file at once"],
        "stream": medians["Rust: piece by piece, one buffer"],
        "parquet": medians["the same table from a local file"],
        "names": medians["Rust: names"],
        "attributes": medians["Rust: names with attributes"],
    }
    for name, (kind, run) in work.items():
        ratio = f"{ceilings[kind] / medians[name]:8.2f}" if kind and not isinstance(run, RustClient) else " " * 8
        goal = f"  goal {GOALS[kind]}" if kind in GOALS and ratio.strip() else ""
        print(f"{name:36}{medians[name] * 1000:10.0f} ms{ratio}{goal}", flush=True)
        if isinstance(run, RustClient):
            run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server:
        measure(options.server, options)
        return
    options.where_possible = options.pytorch = False
    python = wheel_test.interpreter(options)
    frieze = os.path.abspath(hadoop.command(options.frieze))
    build = ["cargo", "build", "--quiet", "--release", "--package", "frieze-client", "--example", "speed"]
    subprocess.run(build, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="frieze-bench-") as scratch:
        work = pathlib.Path(scratch)
        site = wheel_test.built(python, "release", work)
        serve = [frieze, "serve", "--json", "--dir", work / "data", "--listen", "127.0.0.1:0"]
        with open(work / "serve.log", "wb") as log:
            server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log)
        try:
            address = json.loads(server.stdout.readline())["addresses"][0]
            sizes = [f"--mib={options.mib}", f"--names={options.names}", f"--rounds={options.rounds}"]
            run = [python, "-P", os.path.abspath(__file__), "--server", address, *sizes]
            environment = {**os.environ, "PYTHONPATH": str(site), "FRIEZE_CLIENT": ""}
            sys.exit(subprocess.run(run, cwd=work, env=environment).returncode)
        finally:
            server.terminate()
            server.wait(timeout=30)


if __name__ == "__main__":
    main()
