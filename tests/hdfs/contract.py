#!/usr/bin/env python3
"""Hadoop's own contract tests (AbstractContract*Test of hadoop-common 3.4.1) on a server of their own, with HDFS's options, by hdfs://
and by webhdfs://; and DistCp.

    tests/hdfs/contract.py               with the debug build; builds it first
    tests/hdfs/contract.py --frieze PATH with that command

Needs what run.py needs; the jars of the tests come from Maven Central at the first run and stay in the user's cache.
"""

import pathlib
import subprocess
import sys
import tempfile

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
# What fails. These handles are paths of numbers (/.reserved/.inodes/16386), by which HDFS finds a file wherever it has been moved;
# a path of a number would pass by the rights of the directories that the file lies in.
KNOWN = [
    f"PathHandle.test{name}"
    for name in [
        "ChangedAndMoved[TestReference]",
        "Changed[TestReference]",
        "Ident[TestContent]",
        "Ident[TestReference]",
        "Moved[TestContent]",
        "Moved[TestReference]",
        "OpenFileApplyRead[TestContent]",
        "OpenFileApplyRead[TestReference]",
        "OpenFileLazyFail[TestContent]",
        "OpenFileLazyFail[TestReference]",
    ]
]
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


def copies_what_differs(java, work):
    """DistCp copies a tree, and then what differs by its checksum alone: a file of the same length."""

    def hadoop(*arguments):
        with open(work / "errors", "ab") as errors:
            done = subprocess.run([*java, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=errors)
        if done.returncode != 0:
            sys.exit(f"tests/hdfs: {arguments} ended with {done.returncode}:\n" + (work / "errors").read_text()[-4000:])
        return done.stdout

    shell, distcp = "org.apache.hadoop.fs.FsShell", "org.apache.hadoop.tools.DistCp"
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


if __name__ == "__main__":
    main()
