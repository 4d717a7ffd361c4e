#!/usr/bin/env python3
"""Our definitions of Hadoop's messages (crates/hdfs/src/proto) beside the descriptors in Hadoop's own jars: each field has the same
number, label and type, each constant the number of its value.

    tests/hdfs/messages.py
    tests/hdfs/messages.py --where-possible   ends well, and says so, where there is no JDK, no Maven or no jar to be had;
                                              with FRIEZE_STRICT=1 it fails there

Needs what run.py needs, and no server.
"""

import subprocess
import tempfile

import run
from run import hadoop

# The classes that protoc made of each file; files that these import are printed too.
CLASSES = [
    "org.apache.hadoop.ha.proto.HAServiceProtocolProtos",
    "org.apache.hadoop.hdfs.protocol.proto.ClientDatanodeProtocolProtos",
    "org.apache.hadoop.hdfs.protocol.proto.ClientNamenodeProtocolProtos",
    "org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos",
    "org.apache.hadoop.ipc.protobuf.IpcConnectionContextProtos",
    "org.apache.hadoop.ipc.protobuf.ProtobufRpcEngine2Protos",
    "org.apache.hadoop.ipc.protobuf.RpcHeaderProtos",
]


def main():
    jars = run.jars(run.parser(__doc__).parse_args())
    with tempfile.TemporaryDirectory(prefix="frieze-messages-") as classes:
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, run.HERE / "Descriptors.java"], check=True)
        printed = subprocess.run(["java", "-cp", f"{classes}:{jars}", "Descriptors", *CLASSES], check=True, stdout=subprocess.PIPE)
    compared = subprocess.run(["cargo", "xtask", "hadoop-messages"], cwd=hadoop.ROOT, input=printed.stdout)
    if compared.returncode != 0:
        raise SystemExit("tests/hdfs: the messages of crates/hdfs/src/proto are not those of Hadoop")
    print(f"the messages of crates/hdfs/src/proto are those of Hadoop {hadoop.VERSION}")


if __name__ == "__main__":
    main()
