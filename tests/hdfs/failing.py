#!/usr/bin/env python3
"""An unmodified Hadoop client continues while a server of three is killed: the one it writes through, the one that gave it its lease (which is
started again, or is not), then one it reads from. And flushed bytes survive the kill of a lone server.

    tests/hdfs/failing.py               with the debug build; builds it first
    tests/hdfs/failing.py --frieze PATH with that command

Three servers on three loopback addresses, which are one cluster, each with a gateway at the same ports. Needs what run.py needs.
"""

import pathlib
import random
import subprocess
import sys
import tempfile
import time

import run
from run import hadoop

def client(java, cluster, arguments, kill):
    """Runs a client; calls `kill` with the words of its next step."""
    process = subprocess.Popen([*java, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        words = line.split()
        if words == ["holds"]:
            break
        if words and words[0] in ("writing", "reading"):
            kill(words)
            process.stdin.write("\n")
            process.stdin.flush()
    if process.wait() != 0:
        logs = "".join((cluster.work / f"{number}.log").read_text()[-2000:] for number in [1, 2, 3])
        sys.exit(f"tests/hdfs: {arguments[0]} ended with {process.returncode}; the servers logged:\n{logs}")


def main():
    frieze, jars = run.prepared(__doc__)
    with tempfile.TemporaryDirectory(prefix="frieze-hdfs-") as work:
        work = pathlib.Path(work)
        classes = work / "classes"
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, run.HERE / "Failing.java"], check=True)
        cluster = hadoop.Cluster(frieze, work)
        try:
            cluster.await_whole()
            hadoop.site(work / "conf", fs_defaultFS=f"hdfs://127.0.0.1:{cluster.name_port}")
            java = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf'}:{jars}", "Failing"]
            begun = time.monotonic()
            writes = ["write", "127.0.0.3", str(cluster.data_port)]
            client(java, cluster, writes, lambda words: cluster.kill(3))
            print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  a writer continues when the server of its connection is killed")
            cluster.start(3)
            cluster.await_whole()
            begun = time.monotonic()
            writes = ["write", "127.0.0.1", str(cluster.data_port)]
            # As for a name node that is restarted: Hadoop's clients retry only if configured.
            again = {"dfs_client_retry_policy_enabled": "true", "dfs_client_retry_policy_spec": "500,40"}
            hadoop.site(work / "conf-again", fs_defaultFS=f"hdfs://127.0.0.1:{cluster.name_port}", **again)
            java = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf-again'}:{jars}", "Failing"]
            client(java, cluster, writes, lambda words: restart(cluster, 1))
            print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  a writer continues when the server that gave it its lease is killed and restarted")
            cluster.await_whole()
            begun = time.monotonic()
            # All servers as name nodes of one service: calls go to another one too.
            hadoop.site(work / "conf-all", **cluster.names())
            java = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf-all'}:{jars}", "Failing"]
            gone = []
            client(java, cluster, ["move"], lambda words: end(cluster, gone, kill_of(words)))
            print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  a writer continues at another server when the server that gave it its lease is lost for good")
            cluster.start(gone[0])
            cluster.await_whole()
            begun = time.monotonic()
            client(java, cluster, ["read"], lambda words: cluster.kill(kill_of(words)))
            print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  a reader continues when the server it reads from is killed")
        finally:
            cluster.end()
        begun = time.monotonic()
        port = hadoop.free_port()
        hadoop.site(work / "conf-alone", fs_defaultFS=f"hdfs://127.0.0.1:{port}")
        (work / "alone").mkdir()
        java = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf-alone'}:{jars}", "Failing"]
        least = min(flushes(java, f"/flushed-{number}", lambda **how: hadoop.served(frieze, work / "alone", port=port, **how)) for number in range(4))
        print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  flushed bytes survive four kills of a lone server ({least:,} bytes and more)")
        print("all hold")


def flushes(java, path, served):
    """Kills a server under a client that flushes small packets, and checks the acknowledged bytes. Returns their count."""
    with served(killed=True):
        writer = subprocess.Popen([*java, "flush", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        acknowledged = [writer.stdout.readline() for _ in range(random.randrange(500, 5000))]
    # The writer would retry for a while; it has printed every acknowledgement.
    writer.kill()
    acknowledged += writer.stdout.readlines()
    writer.wait()
    acknowledged = [int(line) for line in acknowledged if line.endswith("\n")]
    with served():
        subprocess.run([*java, "look", path, str(acknowledged[-1])], check=True, stdout=subprocess.DEVNULL)
    return acknowledged[-1]


def end(cluster, gone, number):
    # So old is what is noted of a writer.
    time.sleep(2.5)
    cluster.kill(number)
    gone.append(number)


def restart(cluster, number):
    end(cluster, [], number)
    cluster.start(number)


def kill_of(words):
    """The server to kill: the one that the client says it depends on."""
    return int(words[1].rpartition(".")[2])


if __name__ == "__main__":
    main()
