#!/usr/bin/env python3
"""Programs on frieze, their calls traced and analysed: a build, SQLite, git, Spark.

    examples/loads/run.py build              a package and its dependencies, built, changed and built again
    examples/loads/run.py sqlite             transactions with a rollback journal, then with a write-ahead log
    examples/loads/run.py git                a clone of this repository, and its history as patches
    examples/loads/run.py spark              examples/spark as it is; the server's ring has the calls of its clients
    examples/loads/run.py git --out DIR      trace and report lie in DIR/git (default: out/loads)
    examples/loads/run.py git --frieze PATH  with that command (default: the release build; builds it first)

Starts a frieze server, mounts it, runs the programs there, saves the ring as a trace, and runs `frieze analyze`. Ends
what it started; ends itself with 1 if a program fails or the ring lost calls. docs/loads.md has what the reports say.
Needs FUSE; `spark` needs a JDK, `build` the cache that a build of frieze leaves in cargo's home.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop

RING = "256M"
# Dependencies of the package that is built: frieze uses them itself, so cargo's cache has them.
DEPENDENCIES = ["regex", "serde_json", "toml"]
PROGRAM = """
fn main() {
    let pattern = regex::Regex::new("[a-z]+").unwrap();
    let settings: toml::Table = "load = 'build'".parse().unwrap();
    println!("{} {}", pattern.find_iter("one two").count(), serde_json::json!(settings.len()));
}
"""
TRANSACTIONS, ROWS, SEED = 3000, 4, 1
MOUNT_SECONDS_MAX = 20


def ran(command, **options):
    """Runs a command; its standard output. The script ends with the command's last words if it fails."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr.decode()[-3000:]}")
    return done.stdout


def build(folder):
    """Three steps of a developer: dependencies are copied, everything is built, one line changes and is built."""
    package = folder / "package"
    (package / "src").mkdir(parents=True)
    (package / "src" / "main.rs").write_text(PROGRAM)
    # The versions of frieze's own lock file are those in the cache.
    shutil.copyfile(hadoop.ROOT / "Cargo.lock", package / "Cargo.lock")
    wanted = "".join(f'{name} = "*"\n' for name in DEPENDENCIES)
    manifest = f'[package]\nname = "package"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n{wanted}'
    (package / "Cargo.toml").write_text(manifest)
    steps = Steps()
    settings = ran(["cargo", "vendor", "--offline", "--quiet"], cwd=package)
    (package / ".cargo").mkdir()
    (package / ".cargo" / "config.toml").write_bytes(settings)
    steps.took("vendor")
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    cargo = ["cargo", "build", "--offline", "--quiet"]
    ran(cargo, cwd=package, env=environment)
    steps.took("build")
    (package / "src" / "main.rs").write_text(PROGRAM.replace("one two", "one two three"))
    ran(cargo, cwd=package, env=environment)
    steps.took("build again")
    said = ran([package / "target" / "debug" / "package"]).decode().strip()
    if said != "3 1":
        sys.exit(f"the program that was built prints {said!r}, not '3 1'")
    return steps.seconds


def sqlite(folder):
    """Transactions of four rows, two new ones and two changed, each followed by a look at two rows; in both modes."""
    steps = Steps()
    for mode in ["delete", "wal"]:
        chance = random.Random(SEED)
        base = sqlite3.connect(folder / f"{mode}.db", isolation_level=None)
        found = base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
        if found != mode:
            sys.exit(f"SQLite's journal mode is {found}, not {mode}")
        base.execute("PRAGMA synchronous=FULL")
        # 400 pages of 4 KiB: a part of the table.
        base.execute("PRAGMA cache_size=400")
        base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, thread INTEGER, body TEXT)")
        base.execute("CREATE INDEX threads ON messages (thread)")
        rows = 0
        for _ in range(TRANSACTIONS):
            base.execute("BEGIN IMMEDIATE")
            for number in range(ROWS):
                body = chance.randbytes(chance.randrange(100, 1000)).hex()
                if number < ROWS // 2 or rows == 0:
                    rows += 1
                    base.execute("INSERT INTO messages VALUES (?, ?, ?)", (rows, chance.randrange(500), body))
                else:
                    base.execute("UPDATE messages SET body = ? WHERE id = ?", (body, chance.randint(1, rows)))
            base.execute("COMMIT")
            for _ in range(2):
                wanted = chance.randint(1, rows)
                if base.execute("SELECT count(*) FROM messages WHERE id = ?", (wanted,)).fetchone()[0] != 1:
                    sys.exit(f"{mode}: row {wanted} is missing")
        whole = base.execute("PRAGMA integrity_check").fetchone()[0]
        if whole != "ok":
            sys.exit(f"{mode}: {whole}")
        base.close()
        steps.took(f"{mode}: {TRANSACTIONS} transactions")
    return steps.seconds


def git(folder):
    """A clone by git's own protocol, the history as patches, and the state of the work tree."""
    steps = Steps()
    ran(["git", "clone", "--quiet", hadoop.ROOT.as_uri(), folder / "clone"])
    steps.took("clone")
    patches = len(ran(["git", "-C", folder / "clone", "log", "-p"]))
    steps.took("log -p")
    ran(["git", "-C", folder / "clone", "status", "--porcelain"])
    steps.took("status")
    return {**steps.seconds, "patches, bytes": patches}


class Steps:
    """Seconds of each step of a load."""

    def __init__(self):
        self.seconds, self.begun = {}, time.monotonic()

    def took(self, step):
        self.seconds[f"{step}, s"] = round(time.monotonic() - self.begun, 1)
        self.begun = time.monotonic()


@contextlib.contextmanager
def mounted(frieze, server, work):
    """A mount that records; yields its directory, and unmounts."""
    folder = work / "mount"
    folder.mkdir()
    command = [frieze, "--server", server, "mount", folder, "--foreground"]
    command += ["--trace-ring", RING, "--trace-dir", work / "rings"]
    with open(work / "mount.log", "wb") as log:
        mount = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
    try:
        until = time.monotonic() + MOUNT_SECONDS_MAX
        while not os.path.ismount(folder):
            if mount.poll() is not None or time.monotonic() > until:
                sys.exit(f"the mount does not start:\n{(work / 'mount.log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield folder
    finally:
        mount.terminate()
        try:
            mount.wait(timeout=30)
        except subprocess.TimeoutExpired:
            mount.kill()
            mount.wait()


def on_mount(load, frieze, work):
    """Runs a load on a mount; what it reports."""
    with hadoop.served(frieze, work, "--memory", "1024") as ready:
        with mounted(frieze, ready["addresses"][0], work) as folder:
            return load(folder)


def spark(frieze, work):
    """Runs the example; its server records, and so do the commands that the example runs."""
    environment = {**os.environ, "FRIEZE_TRACE_RING": RING, "FRIEZE_TRACE_DIR": str(work / "rings")}
    steps = Steps()
    ran([sys.executable, hadoop.ROOT / "examples" / "spark" / "run.py", "--frieze", frieze], env=environment)
    steps.took("examples/spark")
    return steps.seconds


LOADS = {"build": build, "sqlite": sqlite, "git": git}


def saved(frieze, rings, program, trace):
    """Saves the ring of a program as a trace. The script ends if the ring was too small."""
    shutil.rmtree(trace, ignore_errors=True)
    trace.parent.mkdir(parents=True, exist_ok=True)
    ring = sorted(rings.glob(f"{program}-*.ring"))
    done = json.loads(ran([frieze, "--json", "trace", "save", trace, *ring]))
    if done["overwritten"]:
        sys.exit(f"{done['overwritten']} calls were written over: the ring of {RING} is too small")
    return done


def analysed(frieze, trace, report):
    """Analyses a trace; the report as a document."""
    shutil.rmtree(report, ignore_errors=True)
    return json.loads(ran([frieze, "--json", "analyze", "--quiet", trace, "--out", report]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", choices=[*LOADS, "spark"])
    parser.add_argument("--out", type=pathlib.Path, default=hadoop.ROOT / "out" / "loads", help="where traces go")
    parser.add_argument("--frieze", default=None, help="the command (default: the release build)")
    options = parser.parse_args()
    hadoop.end_orderly()
    frieze = os.path.abspath(hadoop.command(options.frieze))
    out = options.out.resolve() / options.load
    with tempfile.TemporaryDirectory(prefix="frieze-loads-") as work:
        work = pathlib.Path(work)
        if options.load == "spark":
            found, program = spark(frieze, work), "serve"
        else:
            found, program = on_mount(LOADS[options.load], frieze, work), "mount"
        kept = saved(frieze, work / "rings", program, out / "trace")
    print("  ".join(f"{name} {value}" for name, value in found.items()) + f"  events {kept['events']}")
    for figure in analysed(frieze, out / "trace", out / "report")["figures"].values():
        print(f"{figure['title']}\n  " + "\n  ".join(figure["words"]))
    print(f"trace {out / 'trace'}\nreport {out / 'report' / 'report.html'}")


if __name__ == "__main__":
    main()
