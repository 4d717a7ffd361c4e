#!/usr/bin/env python3
"""Unmodified Hadoop clients on a server of their own: what Clients.java does has to hold.

    tests/hdfs/run.py               with the debug build; builds it first
    tests/hdfs/run.py --frieze PATH with that command
    tests/hdfs/run.py --where-possible   ends well, and says so, where there is no JDK, no Maven or no jar to be had;
                                         with FRIEZE_STRICT=1 it fails there (scripts/requirements.py)

Needs a JDK and Maven; the jars of Hadoop 3.4.1 come from Maven Central at the first run and stay in the user's cache
(scripts/hadoop.py).
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop
import requirements


def parser(words):
    """The options of every test here."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where-possible", action="store_true", help="without a JDK, Maven or the jars: say so, and end well")
    return parser


def jars(options):
    """The class path of Hadoop's jars. Where they cannot be had the test ends: well, if that is wanted."""
    did_not = "tests/hdfs: the tests with real Hadoop clients did not run"
    try:
        hadoop.needs(did_not, "java", "javac", "mvn")
        return hadoop.jars()
    except (SystemExit, subprocess.SubprocessError) as missing:
        if not options.where_possible:
            raise
        if isinstance(missing, SystemExit):
            requirements.skip("jdk", "a JDK and Maven", "install them (Debian: default-jdk-headless maven)")
        requirements.skip("jars", "the jars of Hadoop, which Maven could not fetch", "make Maven Central reachable")


def prepared(words):
    """Reads the options: the command, and the class path of Hadoop's jars."""
    options = parser(words)
    options.add_argument("--frieze", default=None, help="the command (default: the debug build)")
    options = options.parse_args()
    path = jars(options)
    return hadoop.command(options.frieze, "debug"), path


def webhdfs(ready):
    """What Hadoop's clients call the WebHDFS gateway of a server with this ready line."""
    return ready["webhdfs"].removesuffix("/webhdfs/v1").replace("http:", "webhdfs:")


def main():
    frieze, jars = prepared(__doc__)
    with tempfile.TemporaryDirectory(prefix="frieze-hdfs-") as work:
        work = pathlib.Path(work)
        classes = work / "classes"
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, HERE / "Clients.java"], check=True)
        with hadoop.served(frieze, work) as ready:
            snapshot = [frieze, "--server", ready["addresses"][0], "snapshot", "create", "monday"]
            subprocess.run(snapshot, check=True, stdout=subprocess.DEVNULL)
            hadoop.site(work / "conf", fs_defaultFS=ready["hdfs"], ipc_client_connect_max_retries=3)
            # Root may act for other users; any other user only for himself.
            whose = ["root"] if os.getuid() == 0 else []
            clients = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf'}:{jars}", "Clients", work, *whose]
            status = subprocess.run(clients).returncode
            if status != 0:
                sys.exit(f"tests/hdfs: the clients ended with {status}")


if __name__ == "__main__":
    main()
