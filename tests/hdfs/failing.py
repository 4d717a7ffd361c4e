#!/usr/bin/env python3
"""An unmodified Hadoop client goes on while a server of three is killed: the one it writes through, then one it reads from.

    tests/hdfs/failing.py               with the debug build; builds it first
    tests/hdfs/failing.py --frieze PATH with that command

Three servers on three loopback addresses, which are one cluster, each with a door at the same ports. Needs what run.py needs.
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import run
from run import hadoop

SETTINGS = 'lease = "1s"\n'


class Cluster:
    """Three servers with doors."""

    def __init__(self, frieze, work):
        self.frieze, self.work = frieze, work
        self.name_port, self.data_port = hadoop.free_port(), hadoop.free_port()
        self.servers, self.addresses = {}, {}
        (work / "settings.toml").write_text(SETTINGS)
        for number in [1, 2, 3]:
            self.start(number)

    def start(self, number):
        host = f"127.0.0.{number}"
        command = [self.frieze, "serve", "--json", "--dir", self.work / str(number), "--name", f"db{number}", "--memory", "256"]
        command += ["--config", self.work / "settings.toml", "--listen", self.addresses.get(number, f"{host}:0")]
        command += ["--hdfs", f"{host}:{self.name_port}", "--hdfs-data", f"{host}:{self.data_port}"]
        if number > 1 and number not in self.addresses:
            command += ["--join", self.addresses[1]]
        log = open(self.work / f"{number}.log", "ab")
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        ready = server.stdout.readline()
        if not ready:
            sys.exit("tests/hdfs: a server does not start:\n" + (self.work / f"{number}.log").read_text()[-2000:])
        self.servers[number] = server
        self.addresses[number] = json.loads(ready)["addresses"][0]

    def await_whole(self):
        """Until every chain is served by all three."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            command = [self.frieze, "--server", self.addresses[1], "cluster", "chains", "--json"]
            asked = subprocess.run(command, capture_output=True)
            chains = [json.loads(line) for line in asked.stdout.splitlines()]
            if chains and all(sum(t["state"] == "serving" for t in chain["targets"]) == 3 for chain in chains):
                return
            time.sleep(0.2)
        sys.exit("tests/hdfs: the cluster does not become whole")

    def kill(self, number):
        self.servers[number].kill()
        self.servers.pop(number).wait()

    def end(self):
        for server in self.servers.values():
            server.send_signal(signal.SIGTERM)
        for server in self.servers.values():
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def client(java, cluster, arguments, kill):
    """Runs a client; `kill` is told what it says it is about to do."""
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
        sys.exit(f"tests/hdfs: {arguments[0]} ended with {process.returncode}; the servers said:\n{logs}")


def main():
    frieze, jars = run.prepared(__doc__)
    with tempfile.TemporaryDirectory(prefix="frieze-hdfs-") as work:
        work = pathlib.Path(work)
        classes = work / "classes"
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, run.HERE / "Failing.java"], check=True)
        cluster = Cluster(frieze, work)
        try:
            cluster.await_whole()
            hadoop.site(work / "conf", fs_defaultFS=f"hdfs://127.0.0.1:{cluster.name_port}")
            java = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf'}:{jars}", "Failing"]
            begun = time.monotonic()
            writes = ["write", "127.0.0.3", str(cluster.data_port)]
            client(java, cluster, writes, lambda words: cluster.kill(3))
            print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  a writer goes on when the server of its connection is killed")
            cluster.start(3)
            cluster.await_whole()
            begun = time.monotonic()
            # All servers as name nodes of one service: calls go to another one too.
            hadoop.site(work / "conf-all", **all_names(cluster))
            java = ["java", "-Xmx512m", "-cp", f"{classes}:{work / 'conf-all'}:{jars}", "Failing"]
            client(java, cluster, ["read"], lambda words: cluster.kill(kill_of(words)))
            print(f"ok  {1000 * (time.monotonic() - begun):5.0f} ms  a reader goes on when the server it reads from is killed")
            print("all hold")
        finally:
            cluster.end()


def all_names(cluster):
    """The properties that name every server."""
    provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    properties = {"fs_defaultFS": "hdfs://frieze", "dfs_nameservices": "frieze", "dfs_ha_namenodes_frieze": "db1,db2,db3"}
    properties["dfs_client_failover_proxy_provider_frieze"] = provider
    for number in [1, 2, 3]:
        properties[f"dfs_namenode_rpc__address_frieze_db{number}"] = f"127.0.0.{number}:{cluster.name_port}"
    return properties


def kill_of(words):
    """The server to kill under a reader: the one it reads from."""
    return int(words[1].rpartition(".")[2])


if __name__ == "__main__":
    main()
