#!/usr/bin/env python3
"""Hadoop's own webhdfs:// client, shell and library, on a server of its own, beside hdfs:// to the same files: what Web.java does has to hold.

    tests/hdfs/webhdfs.py               with the debug build; builds it first
    tests/hdfs/webhdfs.py --frieze PATH with that command

Needs what run.py needs.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import run
from run import hadoop


def main():
    frieze, jars = run.prepared(__doc__)
    with tempfile.TemporaryDirectory(prefix="frieze-webhdfs-") as work:
        work = pathlib.Path(work)
        classes = work / "classes"
        sources = [run.HERE / "Clients.java", run.HERE / "Web.java"]
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, *sources], check=True)
        with hadoop.served(frieze, work, "--webhdfs", "127.0.0.1:0") as ready:
            hadoop.site(work / "conf", fs_defaultFS=run.webhdfs(ready), dfs_http_client_retry_max_attempts=1)
            # Root may act for other users; any other user only for himself.
            whose = ["root"] if os.getuid() == 0 else []
            clients = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf'}:{jars}", "Web", work, ready["hdfs"], *whose]
            status = subprocess.run(clients).returncode
            if status != 0:
                sys.exit(f"tests/hdfs: the clients ended with {status}")


if __name__ == "__main__":
    main()
