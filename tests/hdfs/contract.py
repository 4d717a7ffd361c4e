#!/usr/bin/env python3
"""Hadoop's own contract tests (AbstractContract*Test of hadoop-common 3.4.1) on a server of their own, with HDFS's options, by hdfs://
and by webhdfs://; DistCp, and the tools of administrators.

    tests/hdfs/contract.py               with the debug build; builds it first
    tests/hdfs/contract.py --frieze PATH with that command

Needs what run.py needs; the jars of the tests come from Maven Central at the first run and stay in the user's cache.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import run
from run import hadoop

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>frieze</groupId><artifactId>contract</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-common</artifactId><version>{version}</version><type>test-jar</type>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-distcp</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.13.2</version></dependency>
    <dependency><groupId>org.assertj</groupId><artifactId>assertj-core</artifactId><version>3.12.2</version></dependency>
    <dependency><groupId>org.mockito</groupId><artifactId>mockito-core</artifactId><version>4.11.0</version></dependency>
  </dependencies>
</project>
"""
# What fails.
KNOWN: list[str] = []
# What fails by webhdfs://, for reasons of that client: it opens a file when it is first read, knows no hflush, no safe mode, no
# recovery of leases and no uploads in parts, and seeks without looking.
KNOWN_WEB = [
    "Create.testSyncable",
    "LeaseRecovery.testLeaseRecovery",
    "LeaseRecovery.testLeaseRecoveryFileNotExist",
    "LeaseRecovery.testLeaseRecoveryFileOnDirectory",
    "MultipartUploader.testConcurrentUploads",
    "MultipartUploader.testMultipartUpload",
    "MultipartUploader.testMultipartUploadEmptyPart",
    "MultipartUploader.testMultipartUploadReverseOrder",
    "MultipartUploader.testMultipartUploadReverseOrderNonContiguousPartNumbers",
    "MultipartUploader.testSingleUpload",
    "MultipartUploader.testUploadEmptyBlock",
    "Open.testOpenReadDir",
    "Open.testOpenReadDirWithChild",
    "SafeMode.testSafeMode",
    "Seek.testNegativeSeek",
    "Seek.testSeekPastEndOfFileThenReseekAndRead",
    "Seek.testSeekReadClosedFile",
]


SHELL, DISTCP, TOOLS = "org.apache.hadoop.fs.FsShell", "org.apache.hadoop.tools.DistCp", "org.apache.hadoop.hdfs.tools"


def asker(java, work):
    """Runs a class of Hadoop's and gives what it says; ends where it fails."""

    def hadoop(*arguments):
        with open(work / "errors", "ab") as errors:
            done = subprocess.run([*java, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=errors)
        if done.returncode != 0:
            sys.exit(f"tests/hdfs: {arguments} ended with {done.returncode}:\n" + (work / "errors").read_text()[-4000:])
        return done.stdout

    return hadoop


def copies_between_snapshots(java, work):
    """Hadoop's own tools make snapshots, list and compare them, and DistCp brings a copy on by what is different between two."""
    hadoop = asker(java, work)
    for name, text in [("one", b"1"), ("two", b"22"), ("three", b"333")]:
        (work / name).write_bytes(text)
    hadoop(SHELL, "-mkdir", "-p", "/snapshots/from/sub")
    hadoop(SHELL, "-put", "one", "two", "/snapshots/from")
    hadoop(f"{TOOLS}.DFSAdmin", "-allowSnapshot", "/snapshots/from")
    hadoop(SHELL, "-createSnapshot", "/snapshots/from", "s1")
    hadoop(DISTCP, "/snapshots/from/.snapshot/s1", "/snapshots/to")
    hadoop(SHELL, "-createSnapshot", "/snapshots/to", "s1")
    hadoop(SHELL, "-mv", "/snapshots/from/one", "/snapshots/from/sub/uno")
    hadoop(SHELL, "-rm", "-skipTrash", "/snapshots/from/two")
    hadoop(SHELL, "-put", "three", "/snapshots/from/sub")
    hadoop(SHELL, "-createSnapshot", "/snapshots/from", "s2")
    report = hadoop(f"{TOOLS}.snapshot.SnapshotDiff", "/snapshots/from", "s1", "s2").decode().splitlines()[1:]
    wanted = ["M\t.", "R\t./one -> ./sub/uno", "-\t./two", "M\t./sub", "+\t./sub/three"]
    if [line for line in report if line] != wanted:
        sys.exit(f"tests/hdfs: between the snapshots is different {report}, not {wanted}")
    hadoop(DISTCP, "-update", "-diff", "s1", "s2", "/snapshots/from", "/snapshots/to")
    for path, text in [("sub/uno", b"1"), ("sub/three", b"333")]:
        found = hadoop(SHELL, "-cat", f"/snapshots/to/{path}")
        if found != text:
            sys.exit(f"tests/hdfs: DistCp by snapshots: {path} is {found}")
    names = hadoop(SHELL, "-ls", "-C", "/snapshots/to").decode().split()
    if names != ["/snapshots/to/sub"]:
        sys.exit(f"tests/hdfs: DistCp by snapshots left {names}")
    if hadoop(SHELL, "-cat", "/snapshots/from/.snapshot/s1/two") != b"22":
        sys.exit("tests/hdfs: a file that is gone is not in the snapshot")
    hadoop(SHELL, "-renameSnapshot", "/snapshots/from", "s1", "first")
    listed = hadoop(f"{TOOLS}.snapshot.LsSnapshot", "/snapshots/from").decode()
    directories = hadoop(f"{TOOLS}.snapshot.LsSnapshottableDir").decode()
    if "/snapshots/from/.snapshot/first" not in listed or "/snapshots/from" not in directories:
        sys.exit(f"tests/hdfs: the snapshots are listed as {listed} and {directories}")
    for directory, name in [("from", "first"), ("from", "s2"), ("to", "s1")]:
        hadoop(SHELL, "-deleteSnapshot", f"/snapshots/{directory}", name)
    hadoop(SHELL, "-rm", "-r", "-skipTrash", "/snapshots")
    print("Hadoop's tools make, list and compare snapshots, and DistCp copies what is different between two")


def administrators_are_answered(java, work):
    """Hadoop's tools for administrators say what there is, and where there is none of it, that."""
    hadoop = asker(java, work)
    report = hadoop(f"{TOOLS}.DFSAdmin", "-report").decode()
    if "Live datanodes (1)" not in report or "Erasure Coded Block Groups" not in report:
        sys.exit(f"tests/hdfs: DFSAdmin -report says {report}")
    writer = subprocess.Popen([*java, SHELL, "-appendToFile", "-", "/being-written"], cwd=work, stdin=subprocess.PIPE)
    try:
        until = time.monotonic() + 60
        while "/being-written" not in (listed := hadoop(f"{TOOLS}.DFSAdmin", "-listOpenFiles").decode()):
            if time.monotonic() > until:
                sys.exit(f"tests/hdfs: a file is being written, and DFSAdmin -listOpenFiles says {listed}")
    finally:
        writer.communicate()
    listed = hadoop(f"{TOOLS}.DFSAdmin", "-listOpenFiles", "-path", "/").decode()
    if writer.returncode != 0 or "/being-written" in listed:
        sys.exit(f"tests/hdfs: it was closed ({writer.returncode}), and DFSAdmin -listOpenFiles says {listed}")
    hadoop(SHELL, "-rm", "-skipTrash", "/being-written")
    for tool, *words in [
        ("CacheAdmin", "-listPools"),
        ("CacheAdmin", "-listDirectives"),
        ("CryptoAdmin", "-listZones"),
        ("ECAdmin", "-listPolicies"),
        ("StoragePolicyAdmin", "-listPolicies"),
        ("DFSAdmin", "-upgrade", "query"),
        ("DFSAdmin", "-safemode", "get"),
    ]:
        hadoop(f"{TOOLS}.{tool}", *words)
    print("Hadoop's tools for administrators are answered")


def copies_what_differs(java, work):
    """DistCp copies a tree, and then what differs by its checksum alone: a file of the same length."""
    hadoop, shell, distcp = asker(java, work), SHELL, DISTCP
    (work / "first").write_bytes(b"a" * 100_000)
    (work / "second").write_bytes(b"b" * 100_000)
    hadoop(shell, "-mkdir", "-p", "/distcp/from")
    hadoop(shell, "-put", "first", "/distcp/from/file")
    hadoop(distcp, "/distcp/from", "/distcp/to")
    hadoop(shell, "-put", "-f", "second", "/distcp/to/file")
    hadoop(distcp, "-update", "/distcp/from", "/distcp/to")
    if hadoop(shell, "-cat", "/distcp/to/file") != b"a" * 100_000:
        sys.exit("tests/hdfs: DistCp did not see that a file differs")
    print("DistCp copies a tree, and what differs")


def main():
    frieze, jars = run.prepared(__doc__)
    jars = f"{jars}:{hadoop.fetched(hadoop.cache(f'hdfs-{hadoop.VERSION}/contract'), POM.format(version=hadoop.VERSION))}"
    with tempfile.TemporaryDirectory(prefix="frieze-hdfs-") as work:
        work = pathlib.Path(work)
        classes = work / "classes"
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, run.HERE / "Contract.java"], check=True)
        with hadoop.served(frieze, work, "--memory", "512", "--webhdfs", "127.0.0.1:0") as ready:

            def java(name, url):
                hadoop.site(work / name, fs_defaultFS=url, dfs_http_client_retry_max_attempts=1)
                log4j = (work / name / "log4j.properties").read_text().replace("WARN", "ERROR")
                (work / name / "log4j.properties").write_text(log4j)
                return ["java", "-Xmx512m", "-cp", f"{classes}:{run.HERE}:{work / name}:{jars}"]

            rpc, web = java("rpc", ready["hdfs"]), java("web", run.webhdfs(ready))
            for program, known in [(rpc, KNOWN), (web, KNOWN_WEB)]:
                with open(work / "errors", "wb") as errors:
                    status = subprocess.run([*program, "Contract", *known], cwd=work, stderr=errors).returncode
                if status != 0:
                    sys.exit(f"tests/hdfs: the tests ended with {status}")
            copies_what_differs(rpc, work)
            copies_between_snapshots(rpc, work)
            administrators_are_answered(rpc, work)


if __name__ == "__main__":
    main()
