"""Bad input: each answer names the object and what to do."""

import errno
import os
import socket
import struct
import threading
import time

import pytest

import frieze
from frieze.filesystem import FileSystem, _Client

#: Names of the large directory; the plan's figure is 1,000,000, which takes minutes to make.
NAMES = int(os.environ.get("FRIEZE_NAMES", "20000"))


def test_an_instant_in_the_future_is_refused_with_the_newest_one(fs):
    with pytest.raises(frieze.FutureInstant, match="lies in the future: the newest instant") as caught:
        fs.at(fs.now() + (3600 * 10**6 << 12)).listdir("/")
    assert caught.value.filename == "/" and caught.value.reason == "Future"


def test_a_forgotten_instant_is_refused_with_what_is_kept(fs, place):
    fs.write_text(f"{place}/f", "1")
    old = fs.now()
    fs.write_text(f"{place}/f", "2")
    assert fs.forget(f"{place}/f", fs.now()) > 0
    with pytest.raises(frieze.HistoryExpired) as caught:
        fs.at(old).read_text(f"{place}/f")
    assert caught.value.errno == errno.ERANGE and caught.value.filename == f"{place}/f"
    assert "forg" in str(caught.value) or "kept" in str(caught.value)
    with pytest.raises(frieze.HistoryExpired):
        fs.at(1).listdir("/")


def test_impossible_names_are_refused(fs, place):
    for name, number in [("n" * 256, errno.ENAMETOOLONG), ("a\0b", errno.EINVAL), ("..", errno.EINVAL)]:
        with pytest.raises(OSError) as caught:
            fs.write_text(f"{place}/{name}", "")
        assert caught.value.errno == number, name
    with pytest.raises(NotADirectoryError):
        fs.write_text(f"{place}/f", "")
        fs.write_text(f"{place}/f/g", "")
    with pytest.raises(IsADirectoryError):
        fs.open(place)
    with pytest.raises(TypeError):
        fs.open(5)


def test_offsets_beyond_the_largest_file_are_refused(fs, place):
    with fs.open(f"{place}/f", "w+b", buffering=0) as file:
        file.seek(2**63 - 1)
        with pytest.raises(OSError) as caught:
            file.write(b"12")
        assert caught.value.errno == errno.EFBIG
        with pytest.raises(OSError, match="lies before the file"):
            file.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_a_large_directory_passes_in_pages(fs, place):
    empty = [f"{place}/{index:07}" for index in range(NAMES)]
    threads = [
        threading.Thread(target=lambda paths=empty[start::4]: [fs.write_bytes(path, b"") for path in paths])
        for start in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begin = time.monotonic()
    entries = fs.scandir(place)
    assert next(entries).name == "0000000"
    first = time.monotonic() - begin
    assert sum(1 for _ in entries) == NAMES - 1
    whole = time.monotonic() - begin
    assert fs.listdir(place) == [path.rpartition("/")[2] for path in empty]
    # The first name is there after a page, not after all of them.
    assert first < whole / 2
    fs.remove_tree(place)


def test_no_server_is_an_error_that_names_the_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(ConnectionRefusedError, match=f"cannot reach frieze server at {address}"):
        frieze.connect(address)
    for wrong in ["nowhere", "host:notaport", ""]:
        if wrong:
            with pytest.raises(OSError, match="is not the address of a server"):
                frieze.connect(wrong)
    with pytest.raises(OSError, match="timeout=-1"):
        frieze.connect("127.0.0.1:1", timeout=-1)
    with pytest.raises(OSError, match="key=/absent"):
        frieze.connect("127.0.0.1:1", key="/absent")


def test_a_server_that_ends_is_unavailable_for_as_long_as_the_time_allows(tmp_path):
    from conftest import Served

    served = Served(tmp_path)
    fs = FileSystem(_Client(served.address, None, 0.3, False))
    fs.write_text("/f", "1")
    served.end()
    with pytest.raises(ConnectionError, match="has not answered") as caught:
        fs.read_text("/f")
    assert isinstance(caught.value, frieze.Unavailable) and caught.value.filename == "/f"


class OldServer:
    """An older server, in front of a new one: as `answer` has it."""

    def __init__(self, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.answer = answer
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def received(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def frame(header, body):
    """A frame with another body."""
    header = header[:8] + struct.pack("<I", len(body)) + header[12:64] + struct.pack("<I", crc32c(body)) + header[68:76]
    return header + struct.pack("<I", crc32c(header)) + body


def test_a_server_of_another_protocol_is_named_as_such():
    def answer(client):
        header = received(client, 80)
        old = header[:5] + b"\0" + header[6:76]
        client.sendall(old + struct.pack("<I", crc32c(old)))
        client.close()

    old = OldServer(answer)
    with pytest.raises(frieze.VersionMismatch, match="speaks protocol version 0, this process 1: upgrade the older"):
        frieze.connect(old.address, timeout=1)
    old.listener.close()


def test_a_request_that_an_older_server_does_not_know_is_a_clear_refusal(served):
    """Requests for differences arrive as a request of the future: nothing that the server knows."""

    def answer(client):
        host, port = served.address.split(":")
        server = socket.create_connection((host, int(port)))
        try:
            while True:
                header = received(client, 80)
                body = received(client, struct.unpack("<I", header[8:12])[0])
                payload = received(client, struct.unpack("<I", header[12:16])[0])
                # Field 500 is of no request yet, of an empty message.
                body = b"\xa2\x1f\x00" if b"of-the-future" in body else body
                server.sendall(frame(header, body) + payload)
                header = received(server, 80)
                body_len, payload_len = struct.unpack("<II", header[8:16])
                client.sendall(header + received(server, body_len + payload_len))
        except (EOFError, OSError):
            client.close()
            server.close()

    old = OldServer(answer)
    fs = FileSystem(_Client(old.address, None, 2.0, False))
    assert fs.exists("/")
    with pytest.raises(OSError) as caught:
        list(fs.diff(1, path="/of-the-future"))
    assert caught.value.filename == "/of-the-future", caught.value
    assert isinstance(caught.value, frieze.VersionMismatch) or caught.value.errno == errno.EOPNOTSUPP, caught.value
    # The connection is as good as before.
    assert fs.exists("/")
    old.listener.close()
