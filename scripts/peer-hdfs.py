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
import subprocess
import sys
import tempfile

import hadoop

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


def compiled(jars, into):
    (into / "HdfsWrite.java").write_text(CLIENT)
    subprocess.run(["javac", "-cp", jars, "-d", into, into / "HdfsWrite.java"], check=True)
    return f"{jars}:{into}"


def write(hdfs, mib, warm_s, how):
    """CPU seconds of servers, of the client, and seconds, while so much is written: replicated, or visible at once."""
    command = ["HdfsWrite", str(mib), str(warm_s), how]
    client = hdfs.java("conf-name", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if client.stdout.readline().strip() != b"ready":
        sys.exit("peer-hdfs: the client failed:\n" + (hdfs.work / "conf-name.log").read_text()[-2000:])
    before = hdfs.cpu_s()
    client.stdin.write(b"\n")
    client.stdin.flush()
    client_s, seconds = map(float, client.stdout.readline().split())
    servers_s = hdfs.cpu_s() - before
    client.communicate(b"\n")
    return servers_s, client_s, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="MiB to write")
    parser.add_argument("--warm", type=int, default=10, help="seconds of writing before the measurement")
    parser.add_argument("--visible", action="store_true", help="4 KiB at a time, each visible before the next")
    parser.add_argument("--frieze", default=None, help="the command to compare (default: the release build)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", hadoop.ROOT / "target"))
    frieze = options.frieze or str(target / "release" / "frieze")
    hadoop.needs("peer-hdfs", "java", "javac", "mvn", frieze)
    with tempfile.TemporaryDirectory(prefix="frieze-peer-hdfs-") as work:
        work = pathlib.Path(work)
        hdfs = hadoop.Hdfs(work, compiled(hadoop.jars(), work))
        try:
            how = "visible" if options.visible else "replicated"
            servers_s, client_s, seconds = write(hdfs, options.mib, options.warm, how)
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
