#!/usr/bin/env python3
"""What a replicated write costs HDFS on this machine, beside what it costs frieze, in one run; or how fast small writes are seen.

    scripts/peer-hdfs.py                     1 GiB to three replicas each, HDFS first
    scripts/peer-hdfs.py --mib 4096 --warm 20
    scripts/peer-hdfs.py --visible --mib 256 4 KiB after 4 KiB, each visible before the next (hflush), to one replica

Needs a JDK and Maven; the jars of HDFS 3.4.1 come from Maven Central at the first run and stay in the user's cache. A NameNode and
three DataNodes, each a process, and a client write in pieces of 1 MiB on loopback, after a warm-up: a cold JVM measures its compiler.
CPU is that of all processes while the measured file is written, from its creation to its close; frieze's is that of
`frieze bench replicated-write`, which brings everything to the disk as well.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = "3.4.1"
# jackson-core: a newer one that Maven would choose kills the NameNode.
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>frieze</groupId><artifactId>peer-hdfs</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-hdfs</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-core</artifactId><version>2.12.7</version></dependency>
  </dependencies>
</project>
"""
CLIENT = """
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class HdfsWrite {
    static boolean visible;

    static void write(FileSystem fs, String name, int mib, byte[] data) throws Exception {
        if (visible) {
            try (FSDataOutputStream out = fs.create(new Path(name), true, 4096, (short) 1, 64 << 20)) {
                for (int i = 0; i < mib << 8; i++) {
                    out.write(data, (i % 16384) << 12, 4096);
                    out.hflush();
                }
            }
            return;
        }
        try (FSDataOutputStream out = fs.create(new Path(name))) {
            for (int i = 0; i < mib; i++) out.write(data, (i % 64) << 20, 1 << 20);
        }
    }

    public static void main(String[] args) throws Exception {
        int mib = Integer.parseInt(args[0]);
        visible = args[2].equals("visible");
        long warm = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000_000L;
        byte[] data = new byte[64 << 20];
        new java.util.Random(1).nextBytes(data);
        FileSystem fs = FileSystem.get(new Configuration());
        do {
            write(fs, "/warm", 64, data);
            fs.delete(new Path("/warm"), false);
        } while (System.nanoTime() < warm);
        System.out.println("ready");
        System.in.read();
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime(), wall = System.nanoTime();
        write(fs, "/measured", mib, data);
        System.out.println((system.getProcessCpuTime() - cpu) / 1e9 + " " + (System.nanoTime() - wall) / 1e9);
        System.in.read();
    }
}
"""


def jars(cache):
    """Where the jars and the client's class are; fetched and compiled once."""
    source = cache / "HdfsWrite.java"
    if not (cache / "HdfsWrite.class").exists() or source.read_text() != CLIENT:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "pom.xml").write_text(POM)
        subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], cwd=cache, check=True)
        # Their pages, which the jars lack, are looked for at the start.
        for page in ["hdfs", "datanode"]:
            (cache / "webapps" / page).mkdir(parents=True, exist_ok=True)
        source.write_text(CLIENT)
        subprocess.run(["javac", "-cp", "lib/*", "HdfsWrite.java"], cwd=cache, check=True)
    return f"{cache}/lib/*:{cache}"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def site(folder, **properties):
    folder.mkdir(parents=True)
    text = "".join(
        f"<property><name>{name.replace('__', '-').replace('_', '.')}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    for name in ["core-site.xml", "hdfs-site.xml"]:
        (folder / name).write_text(f"<configuration>{text}</configuration>")
    (folder / "log4j.properties").write_text(
        "log4j.rootLogger=WARN,err\nlog4j.appender.err=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.err.target=System.err\nlog4j.appender.err.layout=org.apache.log4j.SimpleLayout\n"
    )


class Hdfs:
    """A NameNode and three DataNodes in a directory of their own."""

    def __init__(self, work, classpath):
        self.work, self.classpath, self.processes = work, classpath, []
        port = free_port()
        common = {
            "fs_defaultFS": f"hdfs://127.0.0.1:{port}",
            "dfs_replication": 3,
            "dfs_namenode_http__address": "127.0.0.1:0",
            "dfs_namenode_name_dir": f"file://{work}/name",
            "dfs_namenode_datanode_registration_ip__hostname__check": "false",
            "dfs_datanode_address": "127.0.0.1:0",
            "dfs_datanode_http_address": "127.0.0.1:0",
            "dfs_datanode_ipc_address": "127.0.0.1:0",
            "dfs_blocksize": 64 << 20,
        }
        site(work / "conf-name", **common)
        self.java("conf-name", "org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-nonInteractive").wait()
        name = "org.apache.hadoop.hdfs.server.namenode.NameNode"
        self.processes.append(self.java("conf-name", name))
        for number in range(3):
            site(work / f"conf-{number}", **common, dfs_datanode_data_dir=f"file://{work}/data-{number}")
            self.processes.append(self.java(f"conf-{number}", "org.apache.hadoop.hdfs.server.datanode.DataNode"))
        self.await_datanodes()

    def java(self, conf, *arguments, **pipes):
        log = open(self.work / f"{conf}.log", "ab")
        command = ["java", "-Xmx512m", "-cp", f"{self.work / conf}:{self.classpath}", *arguments]
        return subprocess.Popen(command, stderr=log, cwd=self.work, **{"stdout": log, **pipes})

    def await_datanodes(self):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            asked = self.java("conf-name", "org.apache.hadoop.hdfs.tools.DFSAdmin", "-report", "-live", stdout=subprocess.PIPE)
            if asked.communicate()[0].count(b"\nName: ") == 3:
                return
            if any(process.poll() is not None for process in self.processes):
                break
        sys.exit("peer-hdfs: HDFS does not start:\n" + (self.work / "conf-name.log").read_text()[-2000:])

    def cpu_s(self):
        def of(pid):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        return sum(of(process.pid) for process in self.processes)

    def write(self, mib, warm_s, how):
        """CPU seconds of servers, of the client, and seconds, while so much is written: replicated, or visible at once."""
        command = ["HdfsWrite", str(mib), str(warm_s), how]
        client = self.java("conf-name", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if client.stdout.readline().strip() != b"ready":
            sys.exit("peer-hdfs: the client failed:\n" + (self.work / "conf-name.log").read_text()[-2000:])
        before = self.cpu_s()
        client.stdin.write(b"\n")
        client.stdin.flush()
        client_s, seconds = map(float, client.stdout.readline().split())
        servers_s = self.cpu_s() - before
        client.communicate(b"\n")
        return servers_s, client_s, seconds

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="MiB to write")
    parser.add_argument("--warm", type=int, default=10, help="seconds of writing before the measurement")
    parser.add_argument("--visible", action="store_true", help="4 KiB at a time, each visible before the next")
    parser.add_argument("--frieze", default=None, help="the command to compare (default: the release build)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    frieze = options.frieze or str(target / "release" / "frieze")
    for program in ["java", "javac", "mvn", frieze]:
        if shutil.which(program) is None:
            sys.exit(f"peer-hdfs: {program} is missing")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "frieze" / f"hdfs-{VERSION}"
    classpath = jars(cache)
    with tempfile.TemporaryDirectory(prefix="frieze-peer-hdfs-") as work:
        hdfs = Hdfs(pathlib.Path(work), classpath)
        try:
            how = "visible" if options.visible else "replicated"
            servers_s, client_s, seconds = hdfs.write(options.mib, options.warm, how)
        finally:
            hdfs.end()
    found = visible(frieze, options.mib / seconds) if options.visible else replicated(
        frieze, options.mib, (servers_s, client_s, seconds)
    )
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):<28} {value:.3f}")


def bench(frieze, *arguments):
    done = subprocess.run([frieze, "bench", *arguments, "--json"], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def visible(frieze, hdfs_mib_s):
    """One writer, 4 KiB at a time, seen by readers when it is answered."""
    ours = bench(frieze, "visible", "--repeat", "3")
    return {
        "hdfs_mib_s": hdfs_mib_s,
        "frieze_one_mib_s": ours["one_at_a_time_mib_s"],
        "frieze_16_mib_s": ours["value"],
        "one_over_hdfs": ours["one_at_a_time_mib_s"] / hdfs_mib_s,
        "16_over_hdfs": ours["value"] / hdfs_mib_s,
    }


def replicated(frieze, mib, hdfs):
    """Three replicas, everything brought to the disk."""
    ours, gib = bench(frieze, "replicated-write", "--mib", str(mib)), mib / 1024
    servers_s, client_s, seconds = hdfs
    return {
        "hdfs_cpu_s_per_gib": (servers_s + client_s) / gib,
        "hdfs_cpu_client_s_per_gib": client_s / gib,
        "hdfs_gib_s": gib / seconds,
        "frieze_cpu_s_per_gib": ours["cpu_all_s_per_gib"],
        "frieze_gib_s": ours["value"],
        "cpu_over_hdfs": ours["cpu_all_s_per_gib"] / ((servers_s + client_s) / gib),
    }


if __name__ == "__main__":
    main()
