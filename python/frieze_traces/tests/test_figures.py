"""Hand-made traces with known answers: every figure's numbers, exactly."""

import pathlib
import tempfile
import unittest

from .. import pipeline, report
from ..stages import nearby
from . import traces
from .traces import HOUR, MINUTE, SECOND, event

KIB, MIB = 1 << 10, 1 << 20


def analyzed(events, paths=(), replicas=3, stored=None, page=1, **given):
    """({figure: Figure}, facts) of a trace of these events."""
    with tempfile.TemporaryDirectory() as work:
        trace = traces.write(pathlib.Path(work) / "trace", events, paths, **given)
        opened, facts, stages = pipeline.analyze([trace], f"{work}/out", page=page, tell=lambda words: None)
        made = report.figures(report.tables_of(opened, facts, stages, replicas, stored))
        facts["assumed"] = {note["what"]: note["count"] for note in report.assumptions(opened, facts)}
    return {figure.name: figure for figure in made}, facts


def by(rows, key):
    """Rows by the value of one column."""
    return {row[key]: row for row in rows}


class Layers(unittest.TestCase):
    """Figures 2 and 3."""

    def setUp(self):
        # A file of 8 KiB from a flush, read once and a half by gets; a log of 2,000 B; a compaction that reads the
        # first file and writes another one, after which the first is removed.
        self.events = [
            event(0, "create", inode=1, path=11, stream=1),
            event(1, "write", inode=1, stream=1, offset=0, got=8192, purpose=3),
            event(2, "create", inode=2, path=12, stream=2),
            event(3, "append", inode=2, stream=2, offset=0, got=1000, purpose=2),
            event(4, "append", inode=2, stream=2, offset=1000, got=1000, purpose=2),
            event(SECOND, "read", inode=1, stream=3, offset=0, got=8192, purpose=1),
            event(2 * SECOND, "read", inode=1, stream=3, offset=4096, got=4096, purpose=1),
            event(3 * SECOND, "read", inode=1, stream=4, offset=0, got=8192, purpose=4),
            event(3 * SECOND + 1, "create", inode=3, path=13, stream=5),
            event(3 * SECOND + 2, "write", inode=3, stream=5, offset=0, got=6000, purpose=4),
            event(4 * SECOND, "unlink", inode=1, path=11),
        ]
        self.paths = [(11, None, "hfile", "A"), (12, None, "log", None), (13, None, "hfile", "B")]

    def test_bytes_of_each_layer(self):
        figures, _ = analyzed(self.events, self.paths)
        rows = by(figures["layers-io"].rows["layers"], "layer")
        self.assertEqual((rows["core"]["read"], rows["core"]["written"]), (12288, 8192))
        self.assertEqual((rows["all calls"]["read"], rows["all calls"]["written"]), (20480, 16192))
        self.assertEqual(
            (rows["local files, 3 copies"]["read"], rows["local files, 3 copies"]["written"]), (20480, 48576)
        )
        # 8,192 stays; each append touches one page; 6,000 touches two.
        self.assertEqual(rows["written as 4 KiB pages"]["written"], 3 * (8192 + 4096 + 4096 + 8192))
        purposes = by(figures["layers-io"].rows["purposes"], "purpose")
        self.assertEqual(
            {name: (row["read"], row["written"]) for name, row in purposes.items()},
            {"read": (12288, 0), "log": (0, 2000), "flush": (0, 8192), "compaction": (8192, 6000), "not known": (0, 0)},
        )

    def test_data_of_each_layer(self):
        figures, _ = analyzed(self.events, self.paths, stored=100_000)
        rows = by(figures["layers-data"].rows["layers"], "layer")
        self.assertEqual([rows["core, not removed"][part] for part in ["read", "both", "written"]], [0, 0, 0])
        self.assertEqual([rows["all, not removed"][part] for part in ["read", "both", "written"]], [0, 0, 8000])
        self.assertEqual([rows["all"][part] for part in ["read", "both", "written"]], [0, 8192, 8000])
        self.assertEqual(rows["local files, 3 copies"]["untouched"], 100_000 - 3 * 16192)

    def test_types(self):
        figures, _ = analyzed(self.events, self.paths)
        rows = by(figures["types"].rows["types"], "type")
        self.assertEqual(
            (rows["A"]["data both"], rows["A"]["data"], rows["A"]["I/O read"], rows["A"]["I/O written"]),
            (8192, 8192, 20480, 8192),
        )
        self.assertEqual(rows["A"]["I/O per data"], 28672 / 8192)
        self.assertEqual((rows["log"]["data written"], rows["log"]["I/O per data"]), (2000, 1.0))
        self.assertEqual(rows["B"]["data written"], 6000)

    def test_without_purposes_there_is_no_core(self):
        figures, _ = analyzed([event(0, "read", inode=1, got=100), event(9, "write", inode=1, got=50)])
        self.assertEqual(
            [row["layer"] for row in figures["layers-io"].rows["layers"]],
            ["all calls", "local files, 3 copies", "written as 4 KiB pages"],
        )
        self.assertTrue(any("purposes" in text for text in figures["layers-io"].missing))


class Reads(unittest.TestCase):
    """Figures 7 and 8."""

    def test_heat_is_exact_to_the_byte(self):
        # Bytes 0..100 are read once, 100..200 twice, 200..250 three times; another file's 1,000 bytes 70 times.
        events = [
            event(0, "read", inode=1, offset=0, got=200),
            event(1, "read", inode=1, offset=100, got=150),
            event(2, "read", inode=1, offset=200, got=50),
            event(3, "read", inode=1, offset=200, got=50),
        ]
        events += [event(10 + n, "read", inode=2, offset=5000, got=1000) for n in range(70)]
        figures, _ = analyzed(events)
        rows = by(figures["heat"].rows["heat"], "read")
        self.assertEqual(
            {name: (row["data"], row["reads"]) for name, row in rows.items() if row["data"]},
            {"once": (100, 100), "2 or 3": (150, 350), "64 or more": (1000, 70_000)},
        )
        self.assertEqual(sum(row["reads"] for row in rows.values()), 200 + 150 + 100 + 70_000)

    def test_heat_by_pages(self):
        figures, _ = analyzed(
            [event(0, "read", inode=1, offset=0, got=100), event(1, "read", inode=1, offset=4000, got=200)], page=4096
        )
        rows = by(figures["heat"].rows["heat"], "read")
        self.assertEqual((rows["once"]["data"], rows["2 or 3"]["data"]), (4096, 4096))

    def test_a_sequential_stream_counts_like_its_calls(self):
        # In the second trace the same reads come as one stream without a gap, so that one range stands for ten calls.
        def reads(flag):
            return [
                event(n, "read", inode=1, stream=7, offset=100 * n, got=100, flags=flag if n else 0) for n in range(10)
            ] + [event(20, "read", inode=1, stream=8, offset=50, got=100)]

        one, _ = analyzed(reads(8))
        other, _ = analyzed([{**row, "stream": 100 + n} for n, row in enumerate(reads(0))])
        self.assertEqual(one["heat"].rows, other["heat"].rows)
        self.assertEqual(by(one["heat"].rows["heat"], "read")["2 or 3"]["data"], 100)

    def test_locality(self):
        # Reads of 1,000 bytes. The second repeats the first after 30 s; the third lies 500 bytes behind it, 5 s later;
        # the fourth 40 KiB behind that, the fifth 500 KiB behind it; the sixth is far off; the last repeats the first
        # after 20 min.
        places = [
            (0, 0),
            (30, 0),
            (35, 1500),
            (36, 2500 + 40 * KIB),
            (37, 3500 + 540 * KIB),
            (38, 100 * MIB),
            (1200, 0),
        ]
        figures, _ = analyzed([event(t * SECOND, "read", inode=1, offset=at, got=1000) for t, at in places])
        found = {}
        for row in figures["locality"].rows["locality"]:
            found.setdefault(row["distance"], {})[row["seconds"]] = row["reads"]
        self.assertEqual([found["same bytes"][s] for s in [1, 60, 960, 1920]], [0, 1, 1, 2])
        self.assertEqual([found["within 1 KiB"][s] for s in [1, 4, 15, 60, 1920]], [0, 0, 1, 2, 3])
        self.assertEqual([found["within 64 KiB"][s] for s in [1, 4, 15, 60, 1920]], [1, 1, 2, 3, 4])
        self.assertEqual([found["within 1 MiB"][s] for s in [1, 4, 15, 60, 1920]], [2, 2, 3, 4, 5])

    def test_reads_that_meet_end_to_start_are_not_the_same_bytes(self):
        figures, _ = analyzed([event(n * SECOND, "read", inode=1, offset=1000 * n, got=1000) for n in range(4)])
        found = by([row for row in figures["locality"].rows["locality"] if row["seconds"] == 1], "distance")
        self.assertEqual((found["same bytes"]["reads"], found["within 1 KiB"]["reads"]), (0, 3))

    def test_other_reads_between_leave_a_read_undecided(self):
        # More reads of one frame come between than are looked back at.
        events = [event(0, "read", inode=1, offset=0, got=10)]
        events += [event(n * SECOND, "read", inode=1, offset=1000 * n, got=10) for n in range(1, nearby.LOOKBACK + 2)]
        figures, _ = analyzed(events + [event(60 * SECOND, "read", inode=1, offset=0, got=10)])
        self.assertTrue(any("undecided" in text for text in figures["locality"].missing))

    def test_equal_reads_at_one_instant_follow_each_other(self):
        figures, _ = analyzed([event(5, "read", inode=1, got=10, dur_ns=None) for _ in range(3)])
        rows = [row for row in figures["locality"].rows["locality"] if row["distance"] == "same bytes"]
        self.assertEqual(rows[0]["reads"], 2)

    def test_a_sample_counts_whole_regions(self):
        import ibis

        rows = [{"file": 1, "t": n, "start": n << 22, "end": (n << 22) + 10, "reads": 1} for n in range(4096)]
        sampled = nearby.sample(ibis.memtable(rows), 1024).to_pyarrow().to_pylist()
        counted = [row["start"] >> nearby.REGION_BITS for row in sampled if row["counted"]]
        regions = {region: counted.count(region) for region in counted}
        self.assertEqual(set(regions.values()), {16})
        self.assertTrue(30 < len(regions) < 100, len(regions))

    def test_sequential_share(self):
        events = [event(n, "read", inode=1, stream=1, offset=10 * n, got=10, flags=8 if n else 0) for n in range(5)]
        events.append(event(9, "write", inode=2, stream=2, offset=0, got=64, count=4, flags=4))
        figures, _ = analyzed(events)
        rows = by(figures["sequence"].rows["sequence"], "calls")
        self.assertEqual([(row["number"], row["sequential"]) for row in rows.values()], [(5, 4), (4, 3)])

    def test_sequential_share_without_flags(self):
        figures, _ = analyzed(
            [event(n, "read", inode=1, stream=1, offset=[0, 10, 20, 100][n], got=10) for n in range(4)]
        )
        self.assertEqual(figures["sequence"].rows["sequence"][0]["sequential"], 2)

    def test_sequential_share_of_a_ring_that_marks_collapsed_calls_alone(self):
        events = [event(n, "write", inode=1, stream=1, offset=100 * n, got=100) for n in range(4)]
        events.append(event(2, "sync", inode=1, stream=1))
        events.append(event(4, "write", inode=1, stream=1, offset=1000, got=200, count=2, flags=12))
        figures, _ = analyzed(events)
        # Three follow in a row; of the collapsed two the second follows the first, which lies elsewhere.
        self.assertEqual(figures["sequence"].rows["sequence"][1]["sequential"], 4)


class Files(unittest.TestCase):
    """Figures 5 and 6, the carpet, small files."""

    def setUp(self):
        # Four small files, removed after 30 s, 2 min, 2 h and never; one medium, removed after 9 h; one large; one log.
        self.events = []
        sizes = {1: 1000, 2: 2000, 3: 3000, 4: 4000, 5: 20 * MIB, 6: 100 * MIB, 7: 218 * MIB}
        for inode, size in sizes.items():
            self.events += [
                event(inode, "create", inode=inode, path=inode + 100),
                event(inode + 10, "write", inode=inode, offset=0, got=size),
            ]
        for inode, age in {1: 30 * SECOND, 2: 2 * MINUTE, 3: 2 * HOUR, 5: 9 * HOUR}.items():
            self.events.append(event(inode + age, "unlink", inode=inode, path=inode + 100))
        self.events.append(event(10 * HOUR, "stat", inode=6, path=106))
        self.paths = [(inode + 100, None, "hfile", "A") for inode in range(1, 7)] + [(107, None, "log", None)]

    def test_sizes(self):
        figures, _ = analyzed(self.events, self.paths)
        rows = by(figures["sizes"].rows["sizes"], "type")
        self.assertEqual((rows["A"]["files"], rows["A"]["p50"], rows["A"]["max"]), (6, 3500.0, 100 * MIB))
        self.assertEqual((rows["log"]["files"], rows["log"]["mean"]), (1, 218 * MIB))

    def test_lifetimes_with_and_without_logs(self):
        figures, _ = analyzed(self.events, self.paths)
        rows = figures["lifetimes"].rows["lifetimes"]
        small, medium, large = rows[:3]
        self.assertEqual(
            (small["created"], small["removed within 60 s"], small["removed within 60 min"], small["removed share"]),
            (4, 0.25, 0.5, 0.75),
        )
        self.assertEqual((medium["removed within 8 h"], medium["removed"]), (0.0, 1))
        self.assertEqual((large["created"], large["removed"]), (1, 0))
        self.assertEqual(rows[5]["created"], 2)
        self.assertEqual(large["share of data"], 100 * MIB / (10_000 + 120 * MIB))

    def test_carpet_has_every_file_once(self):
        figures, _ = analyzed(self.events, self.paths)
        cells = figures["carpet"].rows["carpet"]
        self.assertEqual(sum(cell["files"] for cell in cells), 7)
        self.assertEqual(sum(cell["files"] for cell in cells if cell["state"] == "still there"), 3)
        self.assertEqual(sum(cell["bytes"] for cell in cells), 10_000 + 338 * MIB)

    def test_small_files_and_metadata(self):
        figures, _ = analyzed(self.events, self.paths)
        rows = by(figures["small"].rows["sizes"], "size")
        self.assertEqual((rows["below 4 KiB"]["files"], rows["64 MiB to 1 GiB"]["files"]), (4, 2))
        calls = by(figures["small"].rows["calls"], "call")
        self.assertEqual(
            {name: row["calls"] for name, row in calls.items()}, {"create": 7, "write": 7, "unlink": 4, "stat": 1}
        )

    def test_a_file_that_a_rename_replaces_dies_then(self):
        events = [
            event(0, "create", inode=1, path=50),
            event(1, "write", inode=1, got=10),
            event(SECOND, "create", inode=2, path=51),
            event(SECOND + 1, "write", inode=2, got=20),
            event(2 * SECOND, "rename", inode=2, path=51, path2=50),
            event(9 * SECOND, "stat", inode=2, path=50),
        ]
        figures, _ = analyzed(events)
        small = figures["lifetimes"].rows["lifetimes"][0]
        self.assertEqual((small["created"], small["removed"]), (2, 1))

    def test_sizes_of_files_from_before_are_marked(self):
        figures, _ = analyzed(
            [event(0, "read", inode=1, offset=1000, got=24), event(1, "read", inode=1, offset=0, got=24)]
        )
        self.assertEqual(figures["sizes"].rows["sizes"][0]["max"], 1024)
        self.assertTrue(any(">=" in text for text in figures["sizes"].missing))


class Time(unittest.TestCase):
    """Rates, bursts and latency."""

    def test_even_calls_have_dispersion_zero_and_bursts_more(self):
        even = [event(n * SECOND // 4, "stat", path=1) for n in range(4 * 300)]
        figures, _ = analyzed(even)
        rows = {(row["calls"], row["unit"]): row for row in figures["rates"].rows["bursts"]}
        self.assertEqual((rows["all", "1 s"]["dispersion"], rows["all", "1 s"]["mean"]), (0.0, 4.0))
        # Ten calls in every tenth second: mean 1, variance 9 (of 290 or more whole seconds).
        bursts = [event(n // 10 * 10 * SECOND + n % 10, "stat", path=1) for n in range(300)] + [
            event(300 * SECOND, "stat", path=1)
        ]
        figures, _ = analyzed(bursts)
        row = figures["rates"].rows["bursts"][0]
        self.assertEqual((row["units"], row["mean"], row["most"]), (300, 1.0, 10))
        self.assertAlmostEqual(row["dispersion"], 9 * 300 / 299, places=9)

    def test_spans_with_losses_are_left_out_of_rates(self):
        events = [event(n * SECOND, "stat", path=1) for n in range(100)] + [event(199 * SECOND, "stat", path=1)]
        lost = {
            "overwritten": 5,
            "spans": [{"from_ns": traces.BEGIN + 100 * SECOND, "to_ns": traces.BEGIN + 190 * SECOND, "events": 5}],
        }
        figures, facts = analyzed(events, lost=lost)
        rows = figures["rates"].rows["bursts"]
        self.assertEqual(rows[0]["units"], 199 - 91)
        self.assertTrue(any(row["lost"] for row in figures["rates"].rows["rates"]))
        self.assertTrue(any("shaded" in text for text in figures["rates"].missing))
        self.assertEqual(sum(count for what, count in facts["assumed"].items() if "overwritten" in what), 5)

    def test_quantiles_and_waiting(self):
        events = [event(n, "stat", path=1, dur_ns=1000) for n in range(99)] + [
            event(100, "stat", path=1, dur_ns=1_000_000)
        ]
        events.append(event(200, "sync", inode=1, dur_ns=4_000_000))
        figures, _ = analyzed(events)
        rows = by(figures["latency"].rows["latency"], "call")
        self.assertEqual(
            (rows["stat"]["events"], rows["stat"]["max_ns"], rows["stat"]["waited_ns"]), (100, 1_000_000, 1_099_000)
        )
        self.assertLess(abs(rows["stat"]["p50_ns"] / 1000 - 1), 0.045)
        self.assertLess(abs(rows["stat"]["p99_ns"] / 1000 - 1), 0.045)
        self.assertEqual(rows["sync"]["share of waiting"], 4_000_000 / 5_099_000)


class Database(unittest.TestCase):
    """Sums over all figures of a random trace, and the purposes by rules."""

    @classmethod
    def setUpClass(cls):
        cls.events, cls.paths, cls.made = traces.database(20_000)

    def test_sums_agree(self):
        figures, facts = analyzed(self.events, self.paths)
        read = sum(row["got"] for row in self.events if row["call"] == 3)
        written = sum(row["got"] for row in self.events if row["call"] in (4, 5))
        every = by(figures["layers-io"].rows["layers"], "layer")["all calls"]
        self.assertEqual((every["read"], every["written"]), (read, written))
        for rows, fields in [("purposes", ("read", "written"))]:
            table = figures["layers-io"].rows[rows]
            self.assertEqual(tuple(sum(row[field] for row in table) for field in fields), (read, written))
        types = figures["types"].rows["types"]
        self.assertEqual((sum(r["I/O read"] for r in types), sum(r["I/O written"] for r in types)), (read, written))
        self.assertEqual(sum(row["reads"] for row in figures["heat"].rows["heat"]), read)
        layer = by(figures["layers-data"].rows["layers"], "layer")["all"]
        self.assertEqual(sum(row["data"] for row in types), layer["read"] + layer["both"] + layer["written"])
        self.assertEqual(sum(row["data"] for row in figures["heat"].rows["heat"]), layer["read"] + layer["both"])
        self.assertEqual(sum(row["calls"] for row in figures["small"].rows["calls"]), len(self.events))
        self.assertEqual(sum(row["events"] for row in figures["latency"].rows["latency"]), len(self.events))
        locality = [row for row in figures["locality"].rows["locality"] if row["seconds"] == 64 * 60]
        shares = [row["share"] for row in locality]
        self.assertEqual(shares, sorted(shares))
        del facts

    def test_purposes_by_rules(self):
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", self.events, self.paths)
            _, facts, stages = pipeline.analyze([trace], f"{work}/out", tell=lambda words: None)
            rows = stages.rows("write_purposes").to_pylist()
        self.assertEqual(facts["purposes"], "rules")
        found = {number: {row["file"] for row in rows if row["write_purpose"] == number} for number in (3, 4)}
        self.assertEqual(found[3], set(self.made["flush"]))
        self.assertEqual(found[4], set(self.made["compaction"]))

    def test_purposes_of_hbase_over_a_gateway_without_open_files(self):
        # Of a client of Hadoop each read is a call of its own. Two files are merged; a third is flushed meanwhile.
        paths, events = [(1, None, "other", "F")], []

        def store_file(inode, born, size):
            paths.extend([(10 * inode, 2, "temporary", "F"), (10 * inode + 1, 1, "hfile", "F")])
            events.append(event(born, "create", inode=inode, path=10 * inode))
            events.append(event(born + 1000, "write", inode=inode, offset=0, got=size))
            done = {"inode": inode, "path": 10 * inode, "path2": 10 * inode + 1}
            events.append(event(born + 2 * SECOND, "rename", **done))

        def archived(inode, at):
            paths.append((10 * inode + 2, 3, "archive", None))
            events.append(event(at, "rename", inode=inode, path=10 * inode + 1, path2=10 * inode + 2))

        size = 200_000
        store_file(1, 0, size)
        store_file(2, 10 * SECOND, size)
        # Opening a file reads its end, a get reads blocks: the last one is short, and more is sent than asked for.
        for inode in [1, 2]:
            events.append(event(13 * SECOND, "read", inode=inode, offset=size - 4096, asked=4096, got=4500))
            events.append(event(14 * SECOND, "read", inode=inode, offset=60_000, asked=20_000, got=20_480))
        # The compaction: of one input the first block is in the cache of HBase. Then it creates its output.
        events.append(event(20 * SECOND, "read", inode=1, offset=0, asked=size, got=size))
        events.append(event(20 * SECOND + 5, "read", inode=2, offset=20_000, asked=size - 20_000, got=size - 20_000))
        store_file(3, 20 * SECOND + SECOND // 2, 390_000)
        store_file(4, 21 * SECOND, size)
        archived(1, 30 * SECOND)
        archived(2, 30 * SECOND)
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", events, paths)
            opened, facts, stages = pipeline.analyze([trace], f"{work}/out", tell=lambda words: None)
            rows = stages.rows("write_purposes").to_pylist()
            made = report.figures(report.tables_of(opened, facts, stages, 3, None))
        self.assertEqual({row["file"]: row["write_purpose"] for row in rows}, {1: 3, 2: 3, 3: 4, 4: 3})
        purposes = by(made[0].rows["purposes"], "purpose")
        self.assertEqual(purposes["compaction"]["read"], 2 * size - 20_000)
        self.assertEqual(purposes["read"]["read"], 2 * (4096 + 20_000))


if __name__ == "__main__":
    unittest.main()
