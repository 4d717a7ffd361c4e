#!/usr/bin/env python3
"""Makes the traces that the division of a server's memory is chosen by (ADR 72), as directories below --out.

    bench/memory/loads.py --source PATH             all; or name some: build scan follow database git messages
    bench/memory/splits.py out/memory/*

--source is a directory of C files for `build`, such as zstd/lib of the crate zstd-sys. Needs strace; for `build` gcc,
for `database` sqlite3, for `git` git and /dev/fuse. Some minutes and 1 GB.
"""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRACE = "strace -f -ttt -T -y -e trace=file,desc -o".split()
BLOCK = os.urandom(1 << 16)


def scan(work):
    """Tables in the manner of Parquet: tasks write files, queries read a footer and then some columns whole."""
    draw = random.Random(1)
    columns, chunk, files = 8, 1 << 20, 40

    def write(name):
        with open(name, "wb", buffering=0) as file:
            for _ in range(columns * (chunk >> 16)):
                file.write(BLOCK)
            file.write(BLOCK[:8192])

    def query(names, wanted, step):
        for name in names:
            with open(name, "rb", buffering=0) as file:
                end = os.fstat(file.fileno()).st_size
                os.pread(file.fileno(), 8, end - 8)
                os.pread(file.fileno(), 8192, end - 8192)
                for column in wanted:
                    for at in range(column * chunk, (column + 1) * chunk, step):
                        os.pread(file.fileno(), step, at)

    names = []
    for day in range(4):
        new = [work / f"day{day}-{n}.parquet" for n in range(files // 4)]
        for name in new:
            write(name)
        names += new
        # A dashboard reads the newest day several times, a report two columns of everything, one query spills.
        for _ in range(3):
            query(new, draw.sample(range(columns), 3), 1 << 16)
        query(names, draw.sample(range(columns), 2), 1 << 18)
        spill = [work / f"spill{day}-{n}" for n in range(4)]
        for name in spill:
            write(name)
        query(spill, range(columns), 1 << 20)
        for name in spill:
            name.unlink()
    query(names, range(columns), 1 << 20)


def follow(work):
    """Four logs that are followed at once, 64 KiB behind and 4 MiB behind; now and then one is read from its start."""
    draw = random.Random(2)
    logs = [os.open(work / f"log{n}", os.O_CREAT | os.O_RDWR) for n in range(4)]
    ends, lags, batch = [0] * 4, [0, 64 << 10, 4 << 20], None
    readers = {(n, lag): 0 for n in range(4) for lag in lags}
    for step in range(24000):
        n, size = step % 4, draw.randrange(500, 8000)
        ends[n] += os.pwrite(logs[n], BLOCK[:size], ends[n])
        for lag in lags if step % 16 < 4 else []:
            while readers[n, lag] + 16384 <= ends[n] - lag:
                readers[n, lag] += len(os.pread(logs[n], 16384, readers[n, lag]))
        if step % 6000 == 5999:
            batch = [draw.randrange(4), 0]
        if batch:
            got = len(os.pread(logs[batch[0]], 1 << 16, batch[1]))
            batch = [batch[0], batch[1] + got] if got == 1 << 16 else None


def database(work):
    """SQLite with a small cache of its own: skewed reads by key and by index, inserts, updates, a few scans."""
    draw = random.Random(3)
    lines = [
        "PRAGMA journal_mode=WAL; PRAGMA cache_size=-500; PRAGMA mmap_size=0; PRAGMA synchronous=NORMAL;",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, v BLOB); CREATE INDEX tk ON t(k);",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<60000)",
        "INSERT INTO t SELECT i, abs(random())%1000000, randomblob(400) FROM n;",
    ]
    for i in range(12000):
        kind, n = draw.random(), 60000 + i
        k = draw.randrange(1000000)
        if kind < 0.6:
            lines.append(f"SELECT length(v) FROM t WHERE id={n - int(n * draw.random() ** 3)};")
        elif kind < 0.75:
            lines.append(f"SELECT count(*), sum(length(v)) FROM t WHERE k BETWEEN {k} AND {k + 200};")
        elif kind < 0.9:
            lines.append(f"INSERT INTO t VALUES({n + 1000000}, {k}, randomblob(400));")
        elif kind < 0.998:
            lines.append(f"UPDATE t SET v=randomblob(400) WHERE id={n - int(n * draw.random() ** 2)};")
        else:
            lines.append("SELECT sum(id), sum(length(v)) FROM t;")
    run = ["sqlite3", work / "db.sqlite"]
    subprocess.run(run, input="\n".join(lines), text=True, stdout=subprocess.DEVNULL, check=True)


def build(work):
    """A C library is compiled file by file, twice."""
    shutil.copytree(os.environ["SOURCE"], work / "lib")
    for _ in range(2):
        for file in sorted((work / "lib").rglob("*.c")):
            # A file that lacks a header is part of the load too.
            compiled = ["gcc", "-O0", f"-I{work}/lib", "-c", file, "-o", file.with_suffix(".o")]
            subprocess.run(compiled, stderr=subprocess.DEVNULL)
        subprocess.run(["ar", "rcs", work / "lib.a", *sorted((work / "lib").rglob("*.o"))], check=True)


def git(frieze, out):
    """A repository is cloned into a mount, then searched from one machine after the other."""
    work = out / "work-git"
    mount, rings, socket = work / "mnt", work / "rings", work / "socket"
    mount.mkdir(parents=True)
    serve = [frieze, "serve", "--dir", work / "data", "--listen", f"unix:{socket}", "--memory", "512"]
    server = subprocess.Popen(serve)
    environment = os.environ | {"FRIEZE_SERVER": f"unix:{socket}"}

    def run(*words):
        subprocess.run([*map(str, words)], env=environment, stdout=subprocess.DEVNULL, check=True)

    try:
        while not socket.exists():
            time.sleep(0.1)
        ring = ["--trace-ring", "256M", "--trace-dir", rings]
        run(frieze, "mount", mount, *ring)
        run("git", "clone", "-q", "--no-local", "--single-branch", ROOT, mount / "repo")
        for back in [60, 120]:
            switch = [["checkout", "-q", f"HEAD~{back}"], ["log", "--stat", "-80"]]
            for steps in [["log", "-p", "-150"]], [["grep", "-c", "frieze"]], switch, [["fsck"]]:
                # Another machine: nothing is in its page cache.
                run(frieze, "umount", mount)
                run(frieze, "mount", mount, *ring)
                for step in steps:
                    run("git", "-C", mount / "repo", *step)
        run(frieze, "umount", mount)
        run(frieze, "trace", "save", out / "git", "--trace-dir", rings)
    finally:
        server.terminate()
        server.wait()


def messages(frieze, out):
    """The Messages load, a 225th and a 45th of a machine."""
    for part in [225, 45]:
        days = 8.3 if part == 225 else 2
        size = ["--scale", f"1/{part}", "--days", str(days)]
        subprocess.run([frieze, "load", "messages", *size, "--out", out / f"messages-{part}"], check=True)


def main():
    """Makes the traces that are named, or all."""
    traced = {"build": build, "scan": scan, "follow": follow, "database": database}
    if sys.argv[1:2] == ["--program"]:
        return traced[sys.argv[2]](pathlib.Path(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", type=pathlib.Path, default=ROOT / "target/release/frieze")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/memory")
    parser.add_argument("--source", type=pathlib.Path, help="C files for `build`")
    parser.add_argument("names", nargs="*", default=[*traced, "git", "messages"])
    options = parser.parse_args()
    out, frieze = options.out.resolve(), options.frieze.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        if name in traced:
            if name == "build" and options.source is None:
                parser.error("--source is needed for `build`")
            work, calls = out / f"work-{name}", out / f"{name}.strace"
            work.mkdir()
            environment = os.environ | {"SOURCE": str(options.source and options.source.resolve())}
            program = [*STRACE, calls, sys.executable, __file__, "--program", name, work]
            subprocess.run(program, env=environment, check=True)
            run = [frieze, "trace", "import", "--format", "strace", calls, "--to", out / name]
            subprocess.run(run, check=True)
            calls.unlink()
            shutil.rmtree(work)
        else:
            {"git": git, "messages": messages}[name](frieze, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
