"""Forks and other processes."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import traceback

import pytest

from frieze.fsspec import FriezeFileSystem

CHILD_S = 60


def in_child(call):
    """What `call` returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = (True, call())
        except BaseException as error:
            answer = (False, f"{error!r}\n{traceback.format_exc()}")
        with os.fdopen(writing, "wb") as out:
            pickle.dump(answer, out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answered:
        is_well, answer = pickle.load(answered)
    assert os.waitpid(child, 0)[1] == 0
    assert is_well, answer
    return answer


def test_a_child_uses_the_file_systems_of_its_parent(fs, place):
    fs.write_text(f"{place}/f", "parent")
    then = fs.at(fs.now())
    ours = fs.session

    def child():
        fs.write_text(f"{place}/f", "child")
        fs.write_text(f"{place}/g", "child")
        return then.read_text(f"{place}/f"), fs.read_text(f"{place}/f"), fs.session

    before, now, theirs = in_child(child)
    assert (before, now) == ("parent", "child") and theirs != ours
    # The parent's session lives, and numbers its changes on.
    assert fs.session == ours
    fs.write_text(f"{place}/f", "again")
    assert fs.read_text(f"{place}/f") == "again"
    assert in_child(lambda: in_child(lambda: fs.read_text(f"{place}/f"))) == "again"


def test_a_fork_in_the_middle_of_a_read_leaves_both_with_their_place(fs, place):
    content = os.urandom(1 << 20) * 32
    fs.write_bytes(f"{place}/f", content)
    with fs.open(f"{place}/f", "rb") as file:
        begun = b"".join(file.read(1 << 20) for _ in range(6))

        def child():
            rest = b"".join(iter(lambda: file.read(1 << 20), b""))
            file.close()
            return begun + rest == content

        assert in_child(child)
        rest = b"".join(iter(lambda: file.read(1 << 20), b""))
    assert begun + rest == content


def test_a_fork_while_other_threads_read_and_write(fs, place):
    content = os.urandom(1 << 20) * 8
    fs.write_bytes(f"{place}/f", content)
    ending, failed = threading.Event(), []

    def load(index):
        try:
            while not ending.is_set():
                with fs.open(f"{place}/f", "rb") as file:
                    assert b"".join(iter(lambda: file.read(300_000), b"")) == content
                fs.write_bytes(f"{place}/{index}", content[: 1 << 20])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=load, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: fs.read_bytes(f"{place}/f") == content and len(fs.listdir(place)) > 0)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_file_opened_to_write_is_refused_in_a_child(fs, place):
    with fs.open(f"{place}/f", "wb", buffering=0) as file:
        file.write(b"1")

        def child():
            with pytest.raises(OSError, match="opened to write before this process was forked"):
                file.write(b"2")
            return True

        assert in_child(child)
        file.write(b"3")
    assert fs.read_bytes(f"{place}/f") == b"13"


def test_a_child_that_ends_by_itself_leaves_the_session_of_its_parent(fs, place):
    ours = fs.session
    child = os.fork()
    if child == 0:
        # As a program that drops everything: not by `os._exit`, but through a new interpreter's end.
        fs.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert fs.session == ours
    fs.write_text(f"{place}/f", "1")
    assert next(session for session in fs.sessions() if session.session == ours).ended is None


def _read(path):
    return _files.cat_file(path)


_files = None


def test_a_loader_that_forks_reads_with_its_workers(fs, place, served):
    global _files
    _files = FriezeFileSystem(served.address)
    paths = [f"{place}/{index}" for index in range(64)]
    _files.pipe({path: path.encode() for path in paths})
    assert _files.cat_file(paths[0]) == paths[0].encode()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map_async(_read, paths).get(CHILD_S) == [path.encode() for path in paths]


def test_a_spawned_process_reads_the_instant_of_a_pickle(fs, place, served):
    fs.write_text(f"{place}/f", "then")
    then = fs.at(fs.now())
    fs.write_text(f"{place}/f", "now")
    program = "import pickle, sys; fs = pickle.load(sys.stdin.buffer); print(fs.read_text(sys.argv[1]), fs.instant)"
    ran = subprocess.run(
        [sys.executable, "-c", program, f"{place}/f"], input=pickle.dumps(then), stdout=subprocess.PIPE, timeout=CHILD_S
    )
    assert ran.stdout.decode().split() == ["then", str(then.instant)]


def test_tokens_are_the_same_in_every_process_and_thread(fs, served):
    files = FriezeFileSystem(served.address, at=fs.now())
    ours = files._fs_token
    theirs = []
    thread = threading.Thread(target=lambda: theirs.append(pickle.loads(pickle.dumps(files))._fs_token))
    thread.start()
    thread.join()
    theirs.append(in_child(lambda: pickle.loads(pickle.dumps(files))._fs_token))
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)._fs_token)"
    ran = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(files), stdout=subprocess.PIPE, timeout=CHILD_S
    )
    assert theirs + ran.stdout.decode().split() == [ours] * 3
