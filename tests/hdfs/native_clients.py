"""What hdfs-native does to a server, and what has to come of it. Run by native.py."""

import os
import subprocess
import sys
import urllib.parse

from hdfs_native import Client, WriteOptions
from hdfs_native.fsspec import HdfsFileSystem

ADDRESS, FRIEZE, SERVER = sys.argv[1:]


def put(client, path, content, **options):
    with client.create(path, WriteOptions(**options)) as writer:
        writer.write(content)


def refused(call, kind, *words):
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error!r} says nothing of {missing}"
    else:
        raise AssertionError(f"{kind.__name__} was expected")


def names(statuses):
    return sorted(status.path for status in statuses)


def files(client):
    client.mkdirs("/a/b", create_parent=True)
    put(client, "/a/b/one", b"hello world")
    status = client.get_file_info("/a/b/one")
    assert (status.length, status.isdir, status.permission) == (11, False, 0o644), status
    reader = client.read("/a/b/one")
    assert reader.read_range(6, 5) == b"world"
    assert reader.read() == b"hello world"
    with client.append("/a/b/one") as writer:
        writer.write(b"!")
    assert client.read("/a/b/one").read() == b"hello world!"
    # Of blocks of its own size, and over several of those that are read.
    big = os.urandom(1 << 20) * 200
    put(client, "/a/big", big, block_size=32 << 20)
    assert client.read("/a/big").read() == big
    assert client.read("/a/big").read_range((128 << 20) - 3, 7) == big[(128 << 20) - 3 : (128 << 20) + 4]
    assert names(client.list_status("/a", recursive=True)) == ["/a/b", "/a/b/one", "/a/big"]
    assert names(client.glob_status("/a/*")) == ["/a/b", "/a/big"]
    summary = client.get_content_summary("/a")
    assert (summary.length, summary.file_count, summary.directory_count) == (len(big) + 12, 2, 2), summary


def attributes(client):
    client.set_permission("/a/b/one", 0o600)
    client.set_times("/a/b/one", 1000, 2000)
    assert client.set_replication("/a/b/one", 2)
    # Of a file without a list: nothing changes.
    client.remove_acl("/a/b/one")
    status = client.get_file_info("/a/b/one")
    assert (status.permission, status.modification_time, status.access_time) == (0o600, 1000, 2000), status


def writers(client):
    writer = client.create("/a/open")
    writer.write(b"x" * 100_000)
    refused(lambda: client.append("/a/open"), OSError, "lease is currently owned by")
    writer.close()
    assert client.get_file_info("/a/open").length == 100_000
    assert client.recover_lease("/a/open")


def refusals(client):
    refused(lambda: client.get_file_info("/none"), FileNotFoundError, "/none")
    refused(lambda: client.create("/a/open"), FileExistsError, "already exists")
    refused(lambda: client.create("/.at/5m-ago/x"), RuntimeError, "SnapshotAccessControlException")


def the_past(client):
    at = subprocess.run([FRIEZE, "--server", SERVER, "now"], check=True, capture_output=True, text=True).stdout.strip()
    client.rename("/a/b/one", "/a/b/two")
    put(client, "/a/b/two", b"new", overwrite=True)
    assert client.read("/a/b/two").read() == b"new"
    assert client.read(f"/.at/{at}/a/b/one").read() == b"hello world!"
    assert names(client.list_status(f"/.at/{at}/a/b")) == [f"/.at/{at}/a/b/one"]
    assert names(client.list_status("/a/b")) == ["/a/b/two"]


def by_fsspec():
    where = urllib.parse.urlsplit(ADDRESS)
    system = HdfsFileSystem(host=where.hostname, port=where.port)
    with system.open("/a/fs", "wb") as writer:
        writer.write(b"fsspec" * 1000)
    with system.open("/a/fs", "rb") as reader:
        reader.seek(5994)
        assert reader.read() == b"fsspec"
    assert sorted(system.ls("/a", detail=False)) == ["/a/b", "/a/big", "/a/fs", "/a/open"]


def main():
    client = Client(ADDRESS)
    files(client)
    attributes(client)
    writers(client)
    refusals(client)
    the_past(client)
    by_fsspec()
    assert client.delete("/a", recursive=True)
    assert names(client.list_status("/")) == []


main()
