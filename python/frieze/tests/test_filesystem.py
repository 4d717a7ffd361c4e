"""The file system's own interface: names, files, time."""

import datetime
import errno
import os
import pickle

import pytest

import frieze


def test_a_file_is_written_and_read_as_with_open(fs, place):
    with fs.open(f"{place}/a", "w") as file:
        file.write("one\ntwo\n")
    with fs.open(f"{place}/a", "a") as file:
        file.write("three\n")
    with fs.open(f"{place}/a") as file:
        assert file.readlines() == ["one\n", "two\n", "three\n"]
    with fs.open(f"{place}/a", "r+b") as file:
        file.seek(4)
        file.write(b"TWO")
        file.seek(0)
        assert file.read() == b"one\nTWO\nthree\n"
        assert file.truncate(4) == 4
    assert fs.stat(f"{place}/a").st_size == 4
    with pytest.raises(FileExistsError):
        fs.open(f"{place}/a", "x")
    with pytest.raises(ValueError, match="give r, w, x or a"):
        fs.open(f"{place}/a", "rw")


def test_buffers_of_other_types_are_written_and_filled(fs, place):
    import array

    numbers = array.array("d", [1.5, 2.5])
    with fs.open(f"{place}/n", "wb", buffering=0) as file:
        assert file.write(numbers) == 16
    back = array.array("d", [0, 0])
    with fs.open(f"{place}/n", "rb", buffering=0) as file:
        assert file.readinto(back) == 16
        with pytest.raises(TypeError, match="read-only"):
            file.readinto(b"1234")
    assert back == numbers


def test_large_files_are_read_by_every_way(fs, place):
    content = os.urandom(1 << 20) * 24 + b"end"
    fs.write_bytes(f"{place}/large", content)
    assert fs.read_bytes(f"{place}/large") == content
    for size in [1000, 64 << 10, 300_001, 1 << 20, 5 << 20]:
        with fs.open(f"{place}/large", "rb") as file:
            pieces = []
            while piece := file.read(size):
                pieces.append(piece)
                if len(pieces) == 8:
                    # A step back ends the read-ahead, and a new one begins.
                    file.seek(-10, os.SEEK_CUR)
                    assert file.read(10) == b"".join(pieces)[-10:]
        assert b"".join(pieces) == content, size
    with fs.open(f"{place}/large", "rb") as file:
        assert file.read(1 << 20) + file.read() == content
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"end"


def test_a_file_that_grows_is_read_on_behind_its_former_end(fs, place):
    fs.write_bytes(f"{place}/log", bytes(12 << 20))
    with fs.open(f"{place}/log", "rb") as file:
        assert sum(len(piece) for piece in iter(lambda: file.read(1 << 20), b"")) == 12 << 20
        with fs.open(f"{place}/log", "ab") as more:
            more.write(b"more")
        assert file.read() == b"more"


def test_directories_are_listed_in_pages_and_walked(fs, place):
    for index in range(3000):
        fs.write_bytes(f"{place}/{index:04}", b"")
    fs.makedirs(f"{place}/sub/sub")
    names = [f"{index:04}" for index in range(3000)] + ["sub"]
    assert fs.listdir(place) == names
    entries = list(fs.scandir(place))
    assert [entry.name for entry in entries] == names
    assert entries[-1].is_dir() and entries[0].is_file() and entries[0].path == f"{place}/0000"
    assert [path for path, _, _ in fs.walk(place)] == [place, f"{place}/sub", f"{place}/sub/sub"]
    assert fs.names(place).num_rows == 3002


def test_names_that_are_not_utf_8_pass_through_in_both_directions(fs, place):
    name = os.fsdecode(b"\xff\xe9.txt")
    fs.write_text(f"{place}/{name}", "latin")
    assert fs.listdir(place) == [name]
    assert fs.read_text(os.fsencode(place) + b"/\xff\xe9.txt") == "latin"
    assert [change.path for change in fs.history(f"{place}")][0] == f"{place}/{name}"
    table = fs.names(place).to_pylist()
    assert table[0]["path_hex"] == f"{place}/".encode().hex() + "ffe92e747874"
    assert table[0]["path"].endswith("/\ufffd\ufffd.txt")
    assert fs.history(place).to_arrow().to_pylist()[-1]["path_hex"] == table[0]["path_hex"]
    with pytest.raises(FileNotFoundError) as caught:
        fs.stat(f"{place}/absent-{name}")
    assert caught.value.filename == f"{place}/absent-{name}"
    fs.history(place)._repr_html_().encode()


def test_links_attributes_and_rights(fs, place):
    fs.write_text(f"{place}/file", "1")
    fs.symlink("file", f"{place}/link")
    fs.link(f"{place}/file", f"{place}/second")
    assert fs.readlink(f"{place}/link") == "file"
    assert fs.islink(f"{place}/link") and fs.isfile(f"{place}/link") and not fs.islink(f"{place}/file")
    assert fs.stat(f"{place}/link").st_nlink == 2
    fs.chmod(f"{place}/file", 0o640)
    fs.utime(f"{place}/file", ns=(1_000, 2_000))
    there = fs.lstat(f"{place}/file")
    assert (there.st_mode & 0o777, there.st_atime_ns, there.st_mtime_ns) == (0o640, 1_000, 2_000)
    fs.setxattr(f"{place}/file", "user.color", b"red")
    assert fs.listxattr(f"{place}/file") == ["user.color"] and fs.getxattr(f"{place}/file", "user.color") == b"red"
    fs.removexattr(f"{place}/file", "user.color")
    with pytest.raises(OSError) as caught:
        fs.getxattr(f"{place}/file", "user.color")
    assert caught.value.errno == errno.ENODATA
    with pytest.raises(FileExistsError):
        fs.rename(f"{place}/file", f"{place}/link")
    fs.replace(f"{place}/file", f"{place}/link")
    assert not fs.exists(f"{place}/file") and not fs.islink(f"{place}/link")
    with pytest.raises(OSError) as caught:
        fs.rmdir(place)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTEMPTY, place)
    assert caught.value.reason == "NotEmpty"
    assert fs.remove_tree(place).count > 0
    assert not fs.exists(place)


def test_new_files_have_the_mask_of_the_process(fs, place):
    before = os.umask(0o027)
    try:
        fs.write_text(f"{place}/masked", "")
        fs.mkdir(f"{place}/directory")
    finally:
        os.umask(before)
    assert fs.stat(f"{place}/masked").st_mode & 0o777 == 0o640
    assert fs.stat(f"{place}/directory").st_mode & 0o777 == 0o750


def test_instants_are_taken_in_every_form(fs, place):
    fs.write_text(f"{place}/f", "then")
    at = fs.now()
    fs.write_text(f"{place}/f", "now!")
    precise = at.time + datetime.timedelta(microseconds=0)
    for form in [at, int(at), str(at)]:
        assert fs.at(form).read_text(f"{place}/f") == "then"
    assert fs.resolve(precise) >= at and fs.resolve(precise).time == at.time
    assert fs.resolve(at.time.isoformat()) == fs.resolve(at.time)
    moving = fs.at("1ms-ago")
    assert moving.instant is not None and pickle.loads(pickle.dumps(moving)).instant == moving.instant
    naive = datetime.datetime(2026, 1, 1)
    with pytest.raises(ValueError, match="no time zone"):
        fs.at(naive)
    with pytest.raises(frieze.InvalidInstant, match="no-such-snapshot"):
        fs.at("no-such-snapshot")
    with pytest.raises(frieze.InvalidInstant):
        fs.at("2026-01-01T00:00:00")
    for wrong in [True, 1.5, None]:
        with pytest.raises(TypeError):
            fs.at(wrong)
    with pytest.raises(ValueError):
        fs.at(-1)


def test_the_past_is_not_changed(fs, place):
    fs.write_text(f"{place}/f", "1")
    then = fs.at(fs.now())
    for change in [
        lambda: then.write_text(f"{place}/f", "2"),
        lambda: then.open(f"{place}/f", "a"),
        lambda: then.remove(f"{place}/f"),
        lambda: then.mkdir(f"{place}/d"),
        lambda: then.replace(f"{place}/f", f"{place}/g"),
        lambda: then.chmod(f"{place}/f", 0o600),
        lambda: then.remove_tree(place),
        lambda: then.undo(since=0),
        lambda: then.restore(place, 5),
    ]:
        with pytest.raises(OSError, match="the past cannot be changed") as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert fs.read_text(f"{place}/f") == "1"


def test_history_names_the_session_and_its_changes_are_undone_by_it(fs, place, served):
    fs.write_text(f"{place}/shared", "ours")
    with frieze.FileSystem(frieze.filesystem._Client(served.address, None, 30.0, False)) as other:
        other.write_text(f"{place}/shared", "theirs")
        other.write_text(f"{place}/extra", "x")
        session = other.session
    newest = fs.history(f"{place}/shared").first(1)[0]
    assert newest.session == session and newest.command and newest.spans == ((0, 6),)
    planned = fs.undo(place, session=session, dry_run=True)
    assert planned.instant is None and planned.count > 0 and fs.exists(f"{place}/extra")
    before = fs.now()
    done = fs.undo(place, session=session)
    assert done.instant > before and not fs.exists(f"{place}/extra")
    assert fs.read_text(f"{place}/shared") == "ours"
    assert session in {session.session for session in fs.sessions()}


def test_deleted_names_are_found_and_restored(fs, place):
    fs.makedirs(f"{place}/tree")
    fs.write_text(f"{place}/tree/a", "1")
    fs.remove(f"{place}/tree/a")
    found = list(fs.deleted(f"{place}/tree"))
    assert [(one.path, one.size) for one in found] == [(f"{place}/tree/a", 1)]
    fs.restore(f"{place}/tree/a", found[0].instant - 1)
    assert fs.read_text(f"{place}/tree/a") == "1"


def test_a_session_of_many_pages_of_history_is_read_whole_and_again(fs, place):
    start = fs.now()
    for index in range(1500):
        fs.write_bytes(f"{place}/{index}", b"x")
    history = fs.history(place, since=start)
    whole = [(change.instant, change.path) for change in history]
    assert whole == [(change.instant, change.path) for change in history]
    assert {path for _, path in whole} == {f"{place}/{index}" for index in range(1500)}
    assert whole == sorted(whole, reverse=True, key=lambda row: row[0])
    assert history.to_arrow().num_rows == len(whole)
    assert sum(change.size_after for change in fs.diff(start, path=place) if change.kind == "file") == 1500


def test_a_notebook_shows_a_timeline_with_escaped_names(fs, place):
    fs.write_text(f"{place}/<b>&", "1")
    page = fs.history(place)._repr_html_()
    assert "<svg" in page and "&lt;b&gt;&amp;" in page and "<b>&<" not in page
    assert "nothing changed" in fs.history(place, since=fs.now())._repr_html_()
    assert "<svg" in fs._repr_html_()
