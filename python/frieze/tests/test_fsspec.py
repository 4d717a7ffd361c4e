"""fsspec's own abstract suites, and what they leave out: instants in paths, names with @, pickles, transactions."""

import pickle

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from frieze.fsspec import FriezeFileSystem, join_instant, split_instant


class FriezeFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, served):
        return FriezeFileSystem(served.address)

    @pytest.fixture
    def fs_path(self, fs):
        # No name of the test: those have stars and brackets.
        path = "/abstract"
        fs.makedirs(path, exist_ok=True)
        yield path
        fs.rm(path, recursive=True)


class TestCopy(FriezeFixtures, AbstractCopyTests):
    pass


class TestGet(FriezeFixtures, AbstractGetTests):
    pass


class TestPut(FriezeFixtures, AbstractPutTests):
    pass


class TestOpen(FriezeFixtures, AbstractOpenTests):
    pass


class TestPipe(FriezeFixtures, AbstractPipeTests):
    pass


@pytest.fixture
def files(served):
    return FriezeFileSystem(served.address)


@pytest.mark.parametrize(
    ("path", "plain", "instant"),
    [
        ("/a", "/a", None),
        ("/a@5m-ago", "/a", "5m-ago"),
        ("/a@hlc-51d8815aefaa0fff", "/a", "hlc-51d8815aefaa0fff"),
        ("/a@2026-11-30T10:00:00Z", "/a", "2026-11-30T10:00:00Z"),
        ("/a@yesterday", "/a", "yesterday"),
        ("/a@last-whole", "/a", "last-whole"),
        ("/a@snapshot:before-upgrade", "/a", "before-upgrade"),
        ("/@5m-ago", "/", "5m-ago"),
        ("/icon@2x.png", "/icon@2x.png", None),
        ("/user@example.com", "/user@example.com", None),
        ("/@scope/package", "/@scope/package", None),
        ("/a@5m-ago/b", "/a@5m-ago/b", None),
        ("/a@5m-ago@", "/a@5m-ago", None),
        ("/a@@", "/a@", None),
        ("/a@now", "/a", "now"),
        ("/a@5m-ago@now", "/a@5m-ago", "now"),
    ],
)
def test_an_at_sign_begins_an_instant_only_if_one_follows(path, plain, instant):
    assert split_instant(path) in [(plain, instant), (plain.rstrip("/"), instant)]


@pytest.mark.parametrize("name", ["/a", "/icon@2x.png", "/a@5m-ago", "/a@", "/a@@", "/@", "/x@yesterday@now"])
def test_every_name_has_a_path_that_opens_it(name):
    assert split_instant(join_instant(name, None)) == (name, None)
    assert split_instant(join_instant(name, "5m-ago")) == (name, "5m-ago")


def test_names_with_at_signs_are_listed_as_they_are_opened(files, fs, place):
    names = ["icon@2x.png", "log@2026-11-30T00:00Z", "tail@", "x@yesterday"]
    for name in names:
        fs.write_text(f"{place}/{name}", name)
    listed = files.ls(place, detail=False)
    assert [files.cat_file(path).decode() for path in listed] == names
    assert [info["name"] for info in files.ls(place)] == listed == files.find(place)
    assert listed[1:] == [f"{place}/log@2026-11-30T00:00Z@", f"{place}/tail@@", f"{place}/x@yesterday@"]
    with pytest.raises(OSError, match="the past cannot be changed"):
        files.pipe_file(f"{place}/x@yesterday", b"")


def test_an_instant_in_a_path_reads_the_past(files, fs, place, tmp_path):
    files.pipe({f"{place}/d/a": b"1", f"{place}/d/sub/b": b"2"})
    then = fs.now()
    files.rm(f"{place}/d", recursive=True)
    files.pipe_file(f"{place}/d/c", b"3")
    past = f"{place}/d@{then}"
    assert files.isdir(past) and files.info(past)["name"] == past
    assert files.ls(past, detail=False) == [f"{place}/d/a@{then}", f"{place}/d/sub@{then}"]
    assert files.cat(files.find(past)) == {f"{place}/d/a@{then}": b"1", f"{place}/d/sub/b@{then}": b"2"}
    # Trees leave the past with their own names.
    files.get(past, str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/a").read_bytes() == b"1" and (tmp_path / "got/sub/b").read_bytes() == b"2"
    files.copy(past, f"{place}/back", recursive=True)
    assert files.find(f"{place}/back") == [f"{place}/back/a", f"{place}/back/sub/b"]
    assert files.cat_file(f"{place}/back/sub/b") == b"2"
    files.cp_file(f"{place}/d/a@{then}", f"{place}/d/c")
    assert files.cat_file(f"{place}/d/c") == b"1"


def test_a_url_names_server_path_and_instant(fs, place, served):
    url = f"frieze://{served.address}{place}/f"
    with fsspec.open(url, "wb") as file:
        file.write(b"then")
    then = fs.now()
    with fsspec.open(url, "wb") as file:
        file.write(b"now!")
    assert fsspec.open(f"{url}@{then}").open().read() == b"then"
    with fsspec.open(url, at=then) as file:
        assert file.read() == b"then"
    files, path = fsspec.core.url_to_fs(url)
    assert path == f"{place}/f" and files.unstrip_protocol(path) == url


def test_pickles_and_tokens_carry_the_instant_and_no_process(files, fs, place, served):
    files.pipe_file(f"{place}/f", b"1")
    moving = FriezeFileSystem(served.address, at="1us-ago")
    files.pipe_file(f"{place}/f", b"2")
    copy = pickle.loads(pickle.dumps(moving))
    assert copy == moving and hash(copy) == hash(moving) and copy.native.instant == moving.native.instant
    assert copy.cat_file(f"{place}/f") == b"1" and copy.storage_options["at"] == str(moving.native.instant)
    assert copy != files and fsspec.AbstractFileSystem.from_json(moving.to_json()) == moving
    with moving.open(f"{place}/f") as file:
        file.read(1)
        again = pickle.loads(pickle.dumps(file))
        assert again.tell() == 1 and again.seek(0) == 0 and again.read() == b"1"
    view = pickle.loads(pickle.dumps(fs.at(moving.native.instant)))
    assert view.read_bytes(f"{place}/f") == b"1"


def test_files_of_a_transaction_appear_together_or_not_at_all(files, place):
    with files.transaction:
        with files.open(f"{place}/a", "wb") as file:
            file.write(b"1")
        assert not files.exists(f"{place}/a")
    assert files.cat_file(f"{place}/a") == b"1"
    with pytest.raises(RuntimeError):
        with files.transaction:
            with files.open(f"{place}/b", "wb") as file:
                file.write(b"1")
            raise RuntimeError
    assert files.ls(place, detail=False) == [f"{place}/a"]


def test_calls_beside_the_suites(files, place):
    files.pipe_file(f"{place}/dir/f", b"0123456789")
    assert files.cat_file(f"{place}/dir/f", start=-3) == b"789"
    assert files.cat_file(f"{place}/dir/f", 2, -2) == b"234567"
    assert files.cat_file(f"{place}/dir/f", 2, 4) == b"23"
    assert files.cat_ranges([f"{place}/dir/f"] * 2, [0, 8], [2, 20]) == [b"01", b"89"]
    assert files.head(f"{place}/dir/f", 2) == b"01" and files.tail(f"{place}/dir/f", 2) == b"89"
    assert files.read_block(f"{place}/dir/f", 5, 2) == b"56"
    before = files.ukey(f"{place}/dir/f")
    files.touch(f"{place}/dir/f", truncate=False)
    assert files.ukey(f"{place}/dir/f") != before and files.size(f"{place}/dir/f") == 10
    files.mv(f"{place}/dir/f", f"{place}/dir/g")
    assert files.glob(f"{place}/**/g") == [f"{place}/dir/g"]
    with pytest.raises(IsADirectoryError):
        files.rm(f"{place}/dir")
    files.rm(f"{place}/d*", recursive=True)
    assert files.ls(place) == []
    with pytest.raises(FileNotFoundError):
        files.ls(f"{place}/absent")
    strict = FriezeFileSystem(files.native.server, auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        strict.pipe_file(f"{place}/absent/f", b"")
    assert files.modified(place) >= files.created(place)
    assert repr(files.fsid).startswith("'frieze-")


def test_links_are_followed_but_not_walked(files, fs, place):
    fs.makedirs(f"{place}/d")
    fs.write_text(f"{place}/d/f", "1")
    fs.symlink("..", f"{place}/d/up")
    fs.symlink("f", f"{place}/d/file")
    fs.symlink("absent", f"{place}/d/broken")
    assert files.find(place) == [f"{place}/d/{name}" for name in ["broken", "f", "file", "up"]]
    types = {info["name"].rpartition("/")[2]: info["type"] for info in files.ls(f"{place}/d")}
    assert types == {"broken": "other", "f": "file", "file": "file", "up": "other"}
    assert files.isdir(f"{place}/d/up") and files.info(f"{place}/d/up")["type"] == "directory"
    assert files.ls(f"{place}/d/up", detail=False) == [f"{place}/d/up/d"]
    files.rm(f"{place}/d/up", recursive=True)
    assert files.isdir(f"{place}/d") and not files.lexists(f"{place}/d/up")
