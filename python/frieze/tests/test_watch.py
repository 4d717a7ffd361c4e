"""Changes as they happen: order, marks, resuming, signals, forks, what is left out."""

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

import frieze
from conftest import Served
from test_processes import CHILD_S, in_child

#: Longest wait for a change that is there.
WAIT_S = 30


def events(watch):
    """What a loop over a watch gives, without marks."""
    return [(change.change, change.path, change.instant) for change in watch if isinstance(change, frieze.Change)]


#: A test run in the background ignores Ctrl-C, and so would its children.
BEGINNING = """
import frieze, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
fs = frieze.connect()
"""


def other_client(program, *arguments, **options):
    """Another process with a client of its own."""
    return subprocess.Popen([sys.executable, "-c", BEGINNING + program, *arguments], **options)


def test_changes_of_another_client_come_as_they_happen(fs, place):
    with fs.watch(place, timeout=WAIT_S) as watch:
        writer = other_client("fs.write_text(sys.argv[1] + '/a', '1'); fs.remove(sys.argv[1] + '/a')", place)
        found = []
        for change in watch:
            found.append((change.change, change.path))
            if change.change == "removed":
                assert change.command == "python" and change.user
                break
    assert writer.wait(CHILD_S) == 0
    assert found[0] == ("added", f"{place}/a") and found[-1] == ("removed", f"{place}/a")


def test_two_watches_from_one_instant_and_one_from_a_mark_have_the_same_changes(fs, place):
    start = fs.now()
    for index in range(30):
        fs.write_text(f"{place}/{index % 7}", "x" * index)
        if index % 5 == 4:
            fs.replace(f"{place}/{index % 7}", f"{place}/moved{index}")
            time.sleep(0.06)
    end = fs.now()
    items = list(fs.watch(place, since=start, until=end, marks=True))
    assert items[-1] == frieze.Resolved(end)
    assert events(fs.watch(place, since=start, until=end)) == events(items)
    # From every mark.
    marks = [index for index, item in enumerate(items) if isinstance(item, frieze.Resolved)]
    for index in marks:
        mark = items[index].instant
        assert events(fs.watch(place, since=mark, until=end)) == events(items[index:])
        assert all(item.instant <= mark for item in items[:index])
        assert all(item.instant > mark for item in items[index + 1 :])
    history = fs.history(place, since=start, until=end)
    assert {change.path for change in history} == {path for _, path, _ in events(items)}


def test_a_position_is_that_of_the_changes_that_were_given_out(fs, place):
    start = fs.now()
    for index in range(10):
        fs.makedirs(f"{place}/in/{index}")
    # Changes with one stamp.
    fs.remove_tree(f"{place}/in")
    end = fs.now()
    whole = events(fs.watch(place, since=start, until=end))
    assert [path for _, path, _ in whole[:11]] == [f"{place}/in", *(f"{place}/in/{index}" for index in range(10))]
    assert len({instant for _, _, instant in whole[11:]}) == 1 and len(whole) == 22
    for count in range(len(whole) + 1):
        watch = fs.watch(place, since=start, until=end)
        begun = [next(watch) for _ in range(count)]
        # The mark is at or before the change given out last: what follows it has the rest.
        rest = events(fs.watch(place, since=watch.resolved, until=end))
        assert set(events(begun) + rest) == set(whole), count
        # A pickle and a child go on exactly, this one too.
        copy = pickle.loads(pickle.dumps(watch))
        assert events(begun) + events(copy) == whole, count
        if count % 7 == 3:
            assert events(begun) + in_child(lambda: events(watch)) == whole, count
        assert events(begun) + events(watch) == whole, count


def test_a_child_goes_on_while_its_parent_does(fs, place):
    with fs.watch(place, timeout=WAIT_S) as watch:
        fs.mkdir(f"{place}/a")
        assert next(watch).path == f"{place}/a"
        waiting = threading.Thread(target=lambda: got.append(next(watch).path))
        got = []
        waiting.start()

        def child():
            fs.mkdir(f"{place}/b")
            return next(watch).path

        assert in_child(child) == f"{place}/b"
        waiting.join(WAIT_S)
        assert got == [f"{place}/b"]
        watch.timeout = 0.1
        assert list(watch) == []


def test_a_spawned_process_goes_on_from_a_pickle(fs, place):
    start = fs.now()
    fs.mkdir(f"{place}/a")
    fs.mkdir(f"{place}/b")
    watch = fs.watch(place, since=start, until=fs.now())
    next(watch)
    program = "import pickle, sys; print([change.path for change in pickle.load(sys.stdin.buffer)])"
    ran = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(watch), stdout=subprocess.PIPE, timeout=CHILD_S
    )
    assert ran.stdout.decode().strip() == str([f"{place}/b"])


def test_a_loop_ends_after_its_timeout_and_another_goes_on(fs, place):
    with fs.watch(place, timeout=0.3) as watch:
        begun = time.monotonic()
        assert list(watch) == [] and not watch.ended
        assert 0.3 <= time.monotonic() - begun < 5
        # Changes elsewhere, with their marks, do not make it longer.
        ending = threading.Event()
        noise_until = time.monotonic() + 10
        is_noisy = lambda: not ending.is_set() and time.monotonic() < noise_until  # noqa: E731
        noise = threading.Thread(target=lambda: [fs.write_text("/doc/noise", "1") for _ in iter(is_noisy, False)])
        noise.start()
        begun = time.monotonic()
        assert list(watch) == [] and time.monotonic() - begun < 5
        ending.set()
        noise.join()
        fs.mkdir(f"{place}/a")
        watch.timeout = WAIT_S
        assert next(watch).path == f"{place}/a"
        watch.timeout = 0
        assert list(watch) == []
    assert watch.ended and list(watch) == []


def test_a_watch_ends_at_an_instant_to_come(fs, place):
    end = frieze.Instant(fs.now() + (600_000 << 12))
    begun = time.monotonic()
    items = list(fs.watch(place, until=end, marks=True))
    assert 0.3 < time.monotonic() - begun < 10
    assert items[-1] == frieze.Resolved(end)


def test_a_watch_ends_with_what_it_watches(fs, place):
    fs.mkdir(f"{place}/in")
    fs.write_text(f"{place}/in/f", "1")
    directory, file = fs.watch(f"{place}/in", timeout=WAIT_S), fs.watch(f"{place}/in/f", timeout=WAIT_S)
    fs.replace(f"{place}/in/f", f"{place}/f")
    fs.remove(f"{place}/f")
    fs.rmdir(f"{place}/in")
    assert [change.change for change in directory] == ["removed", "removed"]
    assert [(change.change, change.path) for change in file] == [
        ("renamed", f"{place}/f"),
        ("removed", f"{place}/f"),
    ]
    for watch in (directory, file):
        assert watch.removed and watch.ended
        copy = pickle.loads(pickle.dumps(watch))
        assert copy.removed and list(copy) == [] and copy.resolved == watch.resolved
        copy.close()
    with pytest.raises(FileNotFoundError):
        fs.watch(f"{place}/in")


def test_close_ends_the_wait_of_another_thread(fs, place):
    watch = fs.watch(place)
    got = []
    thread = threading.Thread(target=lambda: got.append(list(watch)))
    thread.start()
    time.sleep(0.3)
    with pytest.raises(RuntimeError, match="another thread waits in this watch"):
        next(watch)
    watch.close()
    thread.join(5)
    assert got == [[]] and not thread.is_alive()


def test_other_threads_run_while_a_watch_waits(fs, place):
    with fs.watch(place, timeout=1) as watch:
        thread = threading.Thread(target=lambda: list(watch))
        begun = time.monotonic()
        thread.start()
        assert fs.listdir(place) == []
        assert time.monotonic() - begun < 0.9 and thread.is_alive()
        thread.join()


#: Waits until it is interrupted, and prints when that was.
WAITING = """
watch = fs.watch(sys.argv[1])
print("ready", flush=True)
try:
    list(watch)
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
"""


def seconds_to_interrupt(process):
    """How long a waiting process takes to notice Ctrl-C."""
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    readable, _, _ = select.select([process.stdout], [], [], WAIT_S)
    if not readable:
        process.kill()
        raise AssertionError("the wait was not interrupted")
    return float(process.stdout.readline()) - sent


def test_control_c_ends_a_wait_within_half_a_second(fs, place):
    process = other_client(WAITING, place, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    assert seconds_to_interrupt(process) < 0.5
    assert process.wait(CHILD_S) == 0
    # A handler runs in the wait, and the wait goes on.
    program = (
        "signal.signal(signal.SIGUSR1, lambda *_: print(f'{time.monotonic():.3f}', flush=True))\n"
        "watch = fs.watch(sys.argv[1])\nprint('ready', flush=True)\nprint(next(watch).path, flush=True)"
    )
    process = other_client(program, place, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    sent = time.monotonic()
    process.send_signal(signal.SIGUSR1)
    assert float(process.stdout.readline()) - sent < 0.5
    fs.mkdir(f"{place}/after")
    assert process.stdout.readline().decode() == f"{place}/after\n"
    assert process.wait(CHILD_S) == 0


def test_control_c_ends_the_attempts_to_reach_a_server_that_is_lost(tmp_path):
    served = Served(tmp_path)
    try:
        environment = {**os.environ, "FRIEZE_SERVER": served.address, "FRIEZE_CLIENT": ""}
        process = other_client(WAITING, "/", env=environment, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        # The client asks the time, again and again.
        served.process.kill()
        time.sleep(1)
        assert seconds_to_interrupt(process) < 0.5
        assert process.wait(CHILD_S) == 0
    finally:
        served.end()


def test_a_watch_goes_on_after_the_server_was_killed(tmp_path):
    served = Served(tmp_path)
    fs = frieze.connect(served.address, timeout=2, sync=True)
    watch = fs.watch("/", timeout=WAIT_S)
    fs.mkdir("/a")
    assert next(watch).path == "/a"
    fs.mkdir("/b")
    served.process.kill()
    served.process.wait()
    found = []
    with pytest.raises(frieze.Unavailable):
        found += [change.path for change in watch]
    again = Served(tmp_path, listen=served.address)
    try:
        frieze.connect(served.address).mkdir("/c")
        until = time.monotonic() + WAIT_S
        while "/c" not in found and time.monotonic() < until:
            try:
                found.append(next(watch).path)
            except frieze.Unavailable:
                continue
        assert found == ["/b", "/c"]
        watch.close()
    finally:
        fs.close()
        again.end()


def test_forgotten_history_is_an_item_or_a_warning(fs, place):
    start = fs.now()
    fs.write_text(f"{place}/f", "1")
    fs.write_text(f"{place}/f", "2")
    fs.forget(f"{place}/f", fs.now())
    fs.write_text(f"{place}/f", "3")
    end = fs.now()
    for path in (place, f"{place}/f"):
        items = list(fs.watch(path, since=start, until=end, marks=True))
        left_out = [item for item in items if isinstance(item, frieze.LeftOut)]
        assert left_out and {item.why for item in left_out} == {"forgotten"}
        with pytest.warns(frieze.LeftOutWarning, match=f"watch of {path}: changes.* are forgotten") as caught:
            assert events(fs.watch(path, since=start, until=end)) == events(items)
        assert len(caught) == 1 and caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error", frieze.LeftOutWarning)
            watch = fs.watch(path, since=start, until=end)
            with pytest.raises(frieze.LeftOutWarning):
                list(watch)
            assert events(watch) == events(items)


def test_what_cannot_be_watched_is_refused(fs, place):
    now = fs.now()
    with pytest.raises(frieze.FutureInstant, match="after now"):
        fs.watch(place, since=now + (3600 * 10**6 << 12))
    with pytest.raises(ValueError, match="ends .* before it begins"):
        fs.watch(place, since=now, until=now - 1)
    with pytest.raises(ValueError, match="give seconds"):
        fs.watch(place, timeout=-1)
    with pytest.raises(frieze.InvalidInstant):
        fs.watch(place, since="no such snapshot")
    with pytest.raises(FileNotFoundError):
        fs.watch(f"{place}/none")
    with pytest.raises(OSError, match="the past does not change"):
        fs.at(now).watch(place)


def test_names_that_are_not_utf8_come_as_in_listings(fs, place):
    start = fs.now()
    fs.write_bytes(os.fsencode(place) + b"/\xff\n", b"1")
    fs.replace(os.fsencode(place) + b"/\xff\n", os.fsencode(place) + b"/\xfe")
    found = list(fs.watch(place, since=start, until=fs.now()))
    assert (found[0].path, found[-1].path, found[-1].path_before) == (
        f"{place}/\udcff\n",
        f"{place}/\udcfe",
        f"{place}/\udcff\n",
    )
