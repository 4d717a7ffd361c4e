"""Traces that are not as they should be: each an error that names file, column and version, or a counted assumption."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import pyarrow
import pyarrow.parquet

from .. import __main__, pipeline, report
from . import traces
from .test_figures import analyzed
from .traces import SECOND, event


class Refused(unittest.TestCase):
    """Exit status 2, and words that say what to do."""

    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)
        events = [event(n, "read", inode=1, offset=10 * n, got=10) for n in range(50)]
        self.trace = traces.write(self.work / "trace", events)
        self.file = next((self.trace / "events").rglob("*.parquet"))

    def run_on(self, *words, traces_of=None):
        """(exit status, standard output, standard error) of the command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = __main__.main(
                [str(t) for t in traces_of or [self.trace]] + ["--out", str(self.work / "out"), "--quiet", *words]
            )
        return status, out.getvalue(), err.getvalue()

    def refused(self, *parts, **given):
        status, _, err = self.run_on(**given)
        self.assertEqual(status, 2)
        for part in parts:
            self.assertIn(part, err)

    def rewrite(self, change):
        table = pyarrow.parquet.read_table(self.file, partitioning=None)
        pyarrow.parquet.write_table(change(table), self.file)

    def manifest(self, **changed):
        file = self.trace / "manifest.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changed))

    def test_truncated_parquet(self):
        self.file.write_bytes(self.file.read_bytes()[:-100])
        self.refused("part-0.parquet", "not a whole Parquet file", "--partial")

    def test_parquet_with_damaged_pages(self):
        content = bytearray(self.file.read_bytes())
        content[4:400] = bytes(396)
        self.file.write_bytes(bytes(content))
        self.refused("part-0.parquet", "unreadable")

    def test_missing_column(self):
        self.rewrite(lambda table: table.drop_columns(["offset"]))
        self.refused("part-0.parquet", '"offset"', "version 1", "missing")

    def test_foreign_column(self):
        self.rewrite(lambda table: table.append_column("shoe_size", pyarrow.array([1] * table.num_rows)))
        self.refused("part-0.parquet", '"shoe_size"', "not one of version 1")

    def test_column_of_another_type(self):
        self.rewrite(lambda table: table.set_column(0, "t_ns", table.column("t_ns").cast("float64", safe=False)))
        self.refused("part-0.parquet", '"t_ns"', "double", "int64")

    def test_newer_version(self):
        self.manifest(version=2)
        self.refused("manifest.json", "version 2", "newer")

    def test_manifest_of_something_else(self):
        self.manifest(format="else")
        self.refused("manifest.json", "frieze-trace")

    def test_manifest_that_is_no_json(self):
        (self.trace / "manifest.json").write_text("{")
        self.refused("manifest.json", "Copy the trace again")

    def test_spans_of_losses_without_numbers(self):
        self.manifest(lost={"spans": [{"from_ns": "soon"}]})
        self.refused("lost.spans")

    def test_no_trace_and_no_directory(self):
        self.refused("is not a trace", traces_of=[self.work])
        self.refused("no such directory", traces_of=[self.work / "absent"])
        self.refused("given twice", traces_of=[self.trace, self.work / "trace" / "."])

    def test_events_that_the_manifest_counts_are_absent(self):
        self.file.unlink()
        self.refused("counts 50 events")

    def test_options_out_of_range(self):
        for words in [("--page", "3"), ("--replicas", "0"), ("--stored", "-1"), ("--page", "0")]:
            with self.subTest(words):
                self.assertEqual(self.run_on(*words)[0], 2)

    def test_partial_leaves_a_bad_file_out_and_says_so(self):
        (self.file.parent / "part-1.parquet").write_bytes(b"PAR1")
        self.refused("part-1.parquet")
        status, out, _ = self.run_on("--partial", "--json")
        self.assertEqual(status, 0)
        document = json.loads(out)
        self.assertEqual(document["events"], 50)
        self.assertTrue(any("part-1.parquet" in note["what"] for note in document["assumptions"]))


class Assumed(unittest.TestCase):
    """What is odd is counted, and the figures hold."""

    def assumed(self, facts, words):
        return sum(count for what, count in facts["assumed"].items() if words in what)

    def test_an_empty_trace_has_a_report_that_says_so(self):
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", [])
            opened, facts, _ = pipeline.analyze([trace], f"{work}/out", tell=lambda words: None)
            page = report.page(opened, facts, [], "duckdb")
        self.assertIn("no events", page)

    def test_one_event(self):
        for call, given in [
            ("stat", {"path": 1}),
            ("read", {"inode": 1, "got": 10}),
            ("create", {"inode": 1, "path": 2}),
            ("read", {"inode": 1, "got": 10, "offset": None, "dur_ns": None}),
            ("write", {"got": 5}),
        ]:
            with self.subTest(call, **given):
                figures, facts = analyzed([event(0, call, **given)])
                self.assertEqual(facts["events"], 1)
                self.assertEqual(len(figures), len(report.FIGURES))

    def test_all_writes(self):
        figures, _ = analyzed([event(n * SECOND, "write", inode=n, got=100) for n in range(20)])
        self.assertEqual(figures["layers-io"].rows["layers"][0]["written share"], 1.0)
        self.assertIn("No read", figures["heat"].words[0])
        self.assertIn("No read", figures["locality"].words[0])

    def test_unsorted_events_are_sorted_and_counted(self):
        events = [event(n * SECOND, "read", inode=1, offset=0, got=10) for n in range(100)]
        straight, _ = analyzed(events)
        turned, facts = analyzed(events[50:] + events[:50], ordered=False)
        self.assertEqual(self.assumed(facts, "clock set back"), 1)
        self.assertEqual(straight["locality"].rows, turned["locality"].rows)

    def test_measured_duplicates_are_left_out(self):
        events = [event(n, "read", inode=1, offset=0, got=10) for n in range(20)]
        figures, facts = analyzed(events + events[:5])
        self.assertEqual(self.assumed(facts, "twice"), 5)
        self.assertEqual(figures["layers-io"].rows["layers"][0]["read"], 200)

    def test_equal_events_of_a_coarse_clock_are_two_calls(self):
        events = [event(0, "read", inode=1, offset=0, got=10, dur_ns=None)] * 2
        figures, facts = analyzed(events, source="tencent")
        self.assertEqual(self.assumed(facts, "twice"), 0)
        self.assertEqual(figures["layers-io"].rows["layers"][0]["read"], 20)

    def test_a_file_copied_into_the_trace_twice(self):
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", [event(n, "read", inode=1, offset=0, got=10) for n in range(20)])
            file = next((trace / "events").rglob("*.parquet"))
            (file.parent / "part-1.parquet").write_bytes(file.read_bytes())
            opened, facts, _ = pipeline.analyze([trace], f"{work}/out", tell=lambda words: None)
            noted = [note["what"] for note in report.assumptions(opened, facts)]
        self.assertEqual((facts["duplicates"], facts["events"]), (20, 20))
        self.assertTrue(any("the manifest counts 20 events, the files have 40" in what for what in noted))

    def test_negative_and_failed_and_unknown_calls_are_counted(self):
        events = [
            event(0, "read", inode=1, offset=0, got=10),
            event(1, "read", inode=1, offset=-5, got=10),
            event(2, "read", inode=1, got=10, dur_ns=-3),
            event(3, "read", inode=1, got=10, result=2),
            event(4, "stat", path=1) | {"call": 99},
            event(5, "read", inode=1, got=10, gateway=6),
            event(6, "read", inode=1, got=10, flags=1),
            event(7, "read", got=10),
        ]
        figures, facts = analyzed(events)
        for words, count in [
            ("negative", 2),
            ("failed", 1),
            ("does not know", 1),
            ("devices", 1),
            ("past", 1),
            ("name no file", 1),
        ]:
            self.assertEqual(self.assumed(facts, words), count, words)
        self.assertEqual(figures["layers-io"].rows["layers"][0]["read"], 50)

    def test_a_servers_own_events_are_no_calls_of_users(self):
        users = [event(n, "read", inode=5, offset=10 * n, got=10) for n in range(3)]
        # Segment 5 of a log, whose number is no inode; two requests of one read; a scan; an event without a duration.
        fetch = event(1, "device_fetch", inode=5, offset=0, asked=4096, got=4096, gateway=6)
        device = [
            event(0, "device_append", inode=5, offset=0, asked=900, got=900, gateway=6),
            event(0, "device_flush", inode=5, offset=900, asked=900, got=900, flags=2, gateway=6, dur_ns=None),
            fetch,
            dict(fetch),
            event(2, "device_fetch", inode=-7, offset=0, asked=4096, got=0, flags=8, gateway=6),
            event(2, "device_drop", inode=5, offset=0, asked=65536, got=65536, gateway=6, result=5),
            event(3, "device_shares", inode=64 << 20, offset=0, asked=1 << 20, got=1 << 20, gateway=6),
            event(3, "device_remove", inode=-7, gateway=6),
        ]
        figures, facts = analyzed(users + device)
        alone, alone_facts = analyzed(users)
        self.assertEqual(self.assumed(facts, "devices"), len(device))
        # Once more as if users and server were saved twice: only calls can be there twice.
        self.assertEqual(facts["duplicates"], 0)
        for name in ["events", "calls", "failed", "sequential", "measured", "data_events", "unknown_calls"]:
            self.assertEqual(facts[name], alone_facts[name], name)
        for name, figure in alone.items():
            for table, rows in figure.rows.items():
                # Times of the whole trace are those of its last event, whoever made it.
                if name in ("layers-io", "sequence", "heat", "layers-data", "sizes"):
                    self.assertEqual(figures[name].rows[table], rows, f"{name}: {table}")
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", device)
            opened, facts, _ = pipeline.analyze([trace], f"{work}/out", tell=lambda words: None)
            noted = {note["what"]: note["count"] for note in report.assumptions(opened, facts)}
            page = report.write(pathlib.Path(f"{work}/out"), opened, facts, [], "duckdb").read_text()
        self.assertEqual((facts["events"], facts["device"]), (0, len(device)))
        self.assertTrue(any("devices" in what for what in noted), noted)
        self.assertIn("The trace has no events", page)

    def test_files_never_opened_and_closes_never_seen(self):
        figures, _ = analyzed(
            [event(0, "read", inode=1, stream=5, got=10), event(1, "open", inode=2, path=9, stream=6)]
        )
        missing = " ".join(figures["sequence"].missing)
        self.assertIn("1 open files were opened before the trace", missing)
        self.assertIn("1 are not closed", missing)

    def test_a_rename_in_an_imported_trace_keeps_the_file(self):
        # There, the hash of a path is in the place of an inode: 100 becomes 200, and then a new 100 is made.
        events = [
            event(0, "create", inode=100, path=100),
            event(1, "write", inode=100, path=100, got=10),
            event(2, "rename", inode=100, path=100, path2=200),
            event(3, "read", inode=200, path=200, got=10),
            event(4, "create", inode=100, path=100),
            event(5, "write", inode=100, path=100, got=70),
        ]
        figures, facts = analyzed(events, source="strace")
        self.assertEqual(facts["renamed"], 2)
        layer = next(row for row in figures["layers-data"].rows["layers"] if row["layer"] == "all")
        self.assertEqual((layer["read"], layer["both"], layer["written"]), (0, 10, 70))
        self.assertEqual(figures["sizes"].rows["sizes"][0]["files"], 2)

    def test_traces_of_two_file_systems_have_no_file_in_common(self):
        with tempfile.TemporaryDirectory() as work:
            made = [
                traces.write(f"{work}/{n}", [event(n, "read", inode=1, got=10)], key=key)
                for n, key in enumerate(["a", "b", "a"])
            ]
            _, facts, stages = pipeline.analyze(made, f"{work}/out", tell=lambda words: None)
            files = stages.rows("files").num_rows
        self.assertEqual((facts["events"], files), (3, 2))

    def test_a_stopped_run_goes_on_and_another_trace_begins_anew(self):
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", [event(n, "read", inode=1, got=10) for n in range(5)])
            said = []
            pipeline.analyze([trace], f"{work}/out", tell=said.append)
            self.assertGreater(len(said), 10)
            pathlib.Path(work, "out/stage/nearby").rename(pathlib.Path(work, "out/stage/nearby.part"))
            said.clear()
            pipeline.analyze([trace], f"{work}/out", tell=said.append)
            self.assertEqual([words.split(":")[0] for words in said], ["nearby"])
            other = traces.write(f"{work}/other", [event(n, "read", inode=1, got=10) for n in range(6)])
            _, facts, _ = pipeline.analyze([other], f"{work}/out", tell=lambda words: None)
            self.assertEqual(facts["events"], 6)

    def test_the_report_is_one_file_with_every_figure(self):
        events, paths, _ = traces.database(2000)
        with tempfile.TemporaryDirectory() as work:
            trace = traces.write(f"{work}/trace", events, paths)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(__main__.main([str(trace), "--out", f"{work}/out", "--quiet"]), 0)
            page = pathlib.Path(work, "out/report.html").read_text()
            written = sorted(path.name for path in pathlib.Path(work, "out").iterdir())
        for name in ["locality.svg", "heat.csv", "carpet.parquet", "report.json"]:
            self.assertIn(name, written)
        self.assertNotIn("{{", page.split("<script>")[0])
        self.assertNotIn('src="http', page)
        self.assertGreater(page.count('data-figure="'), 9)


if __name__ == "__main__":
    unittest.main()
