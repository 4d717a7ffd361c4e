#!/usr/bin/env python3
"""Unmodified Hadoop clients on a server of their own: what Clients.java does has to hold.

    tests/hdfs/run.py               with the debug build; builds it first
    tests/hdfs/run.py --frieze PATH with that command

Needs a JDK and Maven; the jars of Hadoop 3.4.1 come from Maven Central at the first run and stay in the user's cache
(as for scripts/peer-hdfs.py).
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests" / "hdfs"


def peer():
    """The script that measures HDFS itself: it knows where the jars come from."""
    spec = importlib.util.spec_from_file_location("peer_hdfs", ROOT / "scripts" / "peer-hdfs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepared(words):
    """Reads the options: the command, the script that has the jars, where it keeps them, and the class path."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default=None, help="the command (default: the debug build)")
    options = parser.parse_args()
    for program in ["java", "javac", "mvn"]:
        if shutil.which(program) is None:
            sys.exit(
                f"tests/hdfs: {program} is missing: the tests with real Hadoop clients did not run. "
                "Install a JDK and Maven (Debian: default-jdk-headless maven)."
            )
    frieze = options.frieze
    if frieze is None:
        subprocess.run(["cargo", "build", "--package", "frieze-cli"], cwd=ROOT, check=True)
        frieze = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "frieze")
    hadoop = peer()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "frieze" / f"hdfs-{hadoop.VERSION}"
    return frieze, hadoop, cache, hadoop.jars(cache)


@contextlib.contextmanager
def served(frieze, work, *options):
    """A server with the doors open: what it says when it is ready. If what is done with it fails, or it does not end well, what it told is shown."""
    doors = ["--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0"]
    serve = [frieze, "serve", "--json", "--dir", work / "data", "--listen", "127.0.0.1:0", *doors, *options]
    with open(work / "serve.log", "wb") as log:
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log)

    def told():
        return (work / "serve.log").read_text()[-4000:]

    try:
        ready = server.stdout.readline()
        if not ready:
            sys.exit(f"tests/hdfs: the server does not start:\n{told()}")
        try:
            yield json.loads(ready)
        except SystemExit as failed:
            sys.exit(f"{failed.code}\nThe server said:\n{told()}")
        server.send_signal(signal.SIGTERM)
        if server.wait(timeout=60) != 0:
            sys.exit(f"tests/hdfs: the server ended with {server.returncode}:\n{told()}")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def main():
    frieze, hadoop, cache, jars = prepared(__doc__)
    with tempfile.TemporaryDirectory(prefix="frieze-hdfs-") as work:
        work = pathlib.Path(work)
        classes = work / "classes"
        subprocess.run(["javac", "-nowarn", "-cp", f"{cache}/lib/*", "-d", classes, HERE / "Clients.java"], check=True)
        with served(frieze, work) as ready:
            snapshot = [frieze, "--server", ready["addresses"][0], "snapshot", "create", "monday"]
            subprocess.run(snapshot, check=True, stdout=subprocess.DEVNULL)
            hadoop.site(work / "conf", fs_defaultFS=ready["hdfs"], ipc_client_connect_max_retries=3)
            # Root may speak for others; anybody else is himself alone.
            whose = ["root"] if os.getuid() == 0 else []
            clients = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf'}:{jars}", "Clients", work, *whose]
            status = subprocess.run(clients).returncode
            if status != 0:
                sys.exit(f"tests/hdfs: the clients ended with {status}")


if __name__ == "__main__":
    main()
