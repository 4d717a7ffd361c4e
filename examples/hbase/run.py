#!/usr/bin/env python3
"""HBase, unmodified, with everything it keeps on frieze: a load, a kill -9, and its table as it was, without HBase.

    examples/hbase/run.py                with the release build; builds it first
    examples/hbase/run.py --frieze PATH  with that command
    examples/hbase/run.py --cluster      on three servers of frieze's, of which one is killed too
    examples/hbase/run.py --json         one JSON document instead of lines

Starts a frieze server with the HDFS gateway, ZooKeeper, HBase's master and a region server (512 MiB of heap each), and Messages.java, which
loads a table and knows what it was told. Ends all of them, and itself with 1 if anything is otherwise than it was acknowledged. Needs a
JDK (17) and Maven; the jars come from Maven Central at the first run and stay in the user's cache. README.md says more.
"""

import argparse
import contextlib
import json
import pathlib
import selectors
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

import hadoop

VERSION = "2.6.4-hadoop3"
HADOOP = ["common", "hdfs", "hdfs-client", "auth", "annotations", "distcp", "mapreduce-client-core", "client"]
PINNED = [f"org.apache.hadoop:hadoop-{name}:{hadoop.VERSION}" for name in HADOOP]
# HBase's own load is among the tests of its jobs, and takes a filter from those of its server. Of its other build, which was there; it
# needs nothing else of them.
LOAD = [f"org.apache.hbase:hbase-{name}:{VERSION.partition('-')[0]}:{kind}" for name, kind in [("mapreduce", "jar"), ("mapreduce", "test-jar"), ("server", "test-jar")]]
POM = hadoop.pom([f"org.apache.hbase:hbase-server:{VERSION}"], PINNED + hadoop.ARTIFACTS[-1:], LOAD)
# JVM options of HBase's own start script.
OPEN = ["java.lang", "java.lang.reflect", "java.nio", "java.util", "java.util.concurrent", "jdk.internal.ref", "sun.nio.ch"]
JVM = ["-Xmx512m", "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true", "--add-modules", "jdk.unsupported"]
JVM += [word for package in OPEN for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
JVM += ["--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"]
# Everything together ends by then.
SECONDS_MAX = 290


class Hbase:
    """Processes of HBase, and one that loads it."""

    # The class of the load with its arguments, what is logged beside warnings, and when everything ends.
    load_words = ["Messages"]
    logged = "log4j.logger.org.apache.hadoop.hbase.PerformanceEvaluation=INFO\n"
    seconds_max = SECONDS_MAX

    def __init__(self, frieze, work, url, server, classpath):
        self.frieze, self.work, self.server = frieze, work, server
        self.root = url + "/hbase"
        self.until = time.monotonic() + self.seconds_max
        self.processes = {}
        self.zookeeper_port = hadoop.free_port()
        hadoop.site(work / "conf", fs_defaultFS=url)
        with open(work / "conf" / "log4j.properties", "a") as logged:
            logged.write(self.logged)
        (work / "conf" / "hbase-site.xml").write_text(hadoop.configuration(self.settings()))
        self.java = ["java", *JVM, "-cp", f"{work / 'conf'}:{classpath}"]
        try:
            self.start_all()
        except BaseException:
            self.end()
            raise

    def start_all(self):
        # Before the others: while five virtual machines start at once it is not there for the ten seconds that a client waits.
        self.start("zookeeper", "org.apache.hadoop.hbase.zookeeper.HQuorumPeer", "start")
        self.await_zookeeper()
        self.start("master", "org.apache.hadoop.hbase.master.HMaster", "start")
        self.start_region_server()
        self.load = self.start("load", *self.load_words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answer("the load")

    def await_zookeeper(self):
        process = self.processes["zookeeper"]
        while process.poll() is None and time.monotonic() < self.until:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.zookeeper_port), timeout=1).close()
                return
            time.sleep(0.05)
        sys.exit(f"ZooKeeper does not start:\n{(self.work / 'zookeeper.log').read_text()[-3000:]}")

    def settings(self):
        return {
            "hbase.rootdir": self.root,
            "hbase.tmp.dir": self.work / "tmp",
            "hbase.cluster.distributed": "true",
            "hbase.zookeeper.quorum": "127.0.0.1",
            "hbase.zookeeper.property.clientPort": self.zookeeper_port,
            "hbase.zookeeper.property.dataDir": self.work / "zookeeper",
            "hbase.master.port": hadoop.free_port(),
            "hbase.regionserver.port": hadoop.free_port(),
            "hbase.master.info.port": -1,
            "hbase.regionserver.info.port": -1,
            "hbase.master.hostname": "localhost",
            "hbase.regionserver.hostname": "localhost",
            # The log by the asynchronous writer, which is the default, and every batch of it on the disk before it is acknowledged.
            "hbase.wal.provider": "asyncfs",
            "hbase.wal.hsync": "true",
            "hbase.client.pause": 100,
            # What was compacted away goes to the archive soon, instead of every two minutes.
            "hbase.hfile.compaction.discharger.interval": 2000,
        }

    def start(self, name, *words, **pipes):
        with open(self.work / f"{name}.log", "ab") as log:
            process = subprocess.Popen([*self.java, *words], stderr=log, cwd=self.work, **{"stdout": log, **pipes})
        self.processes[name] = process
        return process

    def start_region_server(self):
        self.start("region-server", "org.apache.hadoop.hbase.regionserver.HRegionServer", "start")

    def kill_region_server(self):
        process = self.processes.pop("region-server")
        process.kill()
        process.wait()

    def told(self):
        logs = ((name, self.work / f"{name}.log") for name in ["master", "region-server", "load"])
        return "\n".join(f"{name} said:\n{log.read_text()[-3000:]}" for name, log in logs)

    def answer(self, what):
        """The next line of the load's, as soon as it is there."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.load.stdout, selectors.EVENT_READ)
            if not selector.select(max(self.until - time.monotonic(), 0)):
                sys.exit(f"{what} does not end in time\n{self.told()}")
        line = self.load.stdout.readline().decode()
        if not line.startswith("{"):
            sys.exit(f"{what}: {line.strip() or 'the load ended'}\n{self.told()}")
        return json.loads(line)

    def do(self, *words):
        self.load.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.load.stdin.flush()
        return self.answer(words[0])

    def now(self):
        """An instant to keep: everything that was acknowledged is before it."""
        asked = subprocess.run([self.frieze, "--server", self.server, "now"], check=True, stdout=subprocess.PIPE, text=True)
        return asked.stdout.split()[0]

    def past(self, instant, name):
        """The table at an instant, from its files of then, against what was acknowledged by then."""
        root = self.root.replace("/hbase", f"/.at/{instant}/hbase")
        return self.do("past", root, name)

    def evaluate(self, test, rows, threads):
        """HBase's own load: rows of 1,000 bytes by each of some threads."""
        words = ["org.apache.hadoop.hbase.PerformanceEvaluation", "--nomapred", f"--rows={rows}", "--presplit=4", test, str(threads)]
        log = self.work / f"{test}.log"
        begun = time.monotonic()
        with open(log, "wb") as out:
            ended = subprocess.run([*self.java, *words], stdout=out, stderr=out, cwd=self.work, timeout=max(self.until - begun, 1))
        text = log.read_text()
        # Each thread says how it ended; the whole ends with 0 whatever happened to one.
        finished = text.count("Finished TestClient-")
        if ended.returncode != 0 or finished != threads:
            sys.exit(f"PerformanceEvaluation {test}: {finished} of {threads} threads end, and it with {ended.returncode}:\n{text[-3000:]}")
        return {"rows": rows * threads, "seconds": round(time.monotonic() - begun, 1)}

    def end(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


def run(hbase, report, cluster=None):
    hbase.do("create")
    report.step("HBase starts on frieze, and has a table of four regions")
    hbase.do("start")
    hbase.do("more", 400)
    before = hbase.do("stop")
    hbase.do("keep", "first")
    first = hbase.now()
    report.step("load: 60 % get, 34 % put, 6 % delete, each get as acknowledged", **before)
    hbase.do("flush")
    hbase.do("start")
    hbase.do("more", 200)
    begun = time.monotonic()
    hbase.kill_region_server()
    hbase.start_region_server()
    hbase.do("more", 1)
    away = time.monotonic() - begun
    hbase.do("more", 200)
    after = hbase.do("stop")
    report.step("the region server is killed under load, another one recovers its log", away_s=round(away, 1), uncertain=after["uncertain"])
    report.step("every row is as it was acknowledged", **hbase.do("check"))
    if cluster:
        server_is_killed(hbase, cluster, report)
    hbase.do("keep", "monday")
    second = hbase.now()
    hbase.do("snapshot", "monday")
    hbase.do("start")
    hbase.do("more", 100)
    hbase.do("stop")
    hbase.do("flush")
    report.step("flush and major compaction", **hbase.do("compact"))
    hbase.do("roll")
    report.step("every row is as it was acknowledged", **hbase.do("check"))
    report.step("a clone of a snapshot of HBase's is the table as it was when that was taken", **hbase.do("clone", "monday"))
    for test in ["sequentialWrite", "randomRead", "scan"]:
        report.step(f"HBase's PerformanceEvaluation: {test}", **hbase.evaluate(test, 5000, 2))
    report.step("in the past, before the kill: logs of then give every row", instant=first, **past(hbase, first, "first"))
    report.step("in the past, after it: HFiles and logs of then do", instant=second, **past(hbase, second, "monday"))


def server_is_killed(hbase, cluster, report):
    """One of the servers that have the bytes goes, and with it a connection of every log that is being written; then it comes back."""
    hbase.do("start")
    hbase.do("more", 50)
    begun = time.monotonic()
    cluster.kill(3)
    hbase.do("more", 50)
    away = time.monotonic() - begun
    cluster.start(3)
    cluster.await_whole()
    hbase.do("more", 50)
    found = hbase.do("stop")
    report.step("a server of frieze's is killed under load, and comes back", fifty_more_after_s=round(away, 1), uncertain=found["uncertain"])
    report.step("every row is as it was acknowledged", **hbase.do("check"))


def past(hbase, instant, name):
    found = hbase.past(instant, name)
    if found["changed_since"] == 0:
        sys.exit(f"{instant}: nothing was changed since: that is not the past")
    return found


@contextlib.contextmanager
def on_one(frieze, work):
    with hadoop.served(frieze, work, "--memory", "1024") as ready:
        yield ready["hdfs"], ready["addresses"][0], None


@contextlib.contextmanager
def on_cluster(frieze, work):
    cluster = hadoop.Cluster(frieze, work)
    try:
        cluster.await_whole()
        yield f"hdfs://127.0.0.1:{cluster.name_port}", cluster.addresses[1], cluster
    finally:
        cluster.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default=None, help="the command (default: the release build)")
    parser.add_argument("--cluster", action="store_true", help="three servers of frieze's, one of which is killed")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    hadoop.end_orderly()
    hadoop.needs("examples/hbase", "java", "javac", "mvn")
    frieze = hadoop.command(options.frieze)
    jars = hadoop.fetched(hadoop.cache(f"hbase-{VERSION}"), POM)
    report = hadoop.Report(options.json, {"hbase": VERSION, "hadoop": hadoop.VERSION})
    with tempfile.TemporaryDirectory(prefix="frieze-hbase-") as work:
        work = pathlib.Path(work)
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", work / "classes", HERE / "Messages.java"], check=True)
        classpath = f"{work / 'classes'}:{jars}"
        with (on_cluster if options.cluster else on_one)(frieze, work) as (url, server, cluster):
            hbase = Hbase(frieze, work, url, server, classpath)
            try:
                run(hbase, report, cluster)
            finally:
                hbase.end()
    report.end("nothing that was acknowledged was lost, in the present and in the past")


if __name__ == "__main__":
    main()
