"""The Python reader, written from FORMAT.md alone, against `convtrace show --json` on the golden traces;
the reader with damaged files; and the export to Parquet with the engines that read it."""
import glob
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("CONVTRACE_BUILD") or os.path.join(ROOT, "build", "release")
TOOL = os.path.join(BUILD, "bin", "convtrace")
GOLDEN = sorted(glob.glob(os.path.join(ROOT, "tests", "golden", "v1", "*.ctrace")))
sys.path.insert(0, os.path.join(BUILD, "share", "convtrace", "python"))

try:
    import convtrace.trace
    import flatbuffers
    from convtrace import codec, columns, events, flat, hashes
except ImportError as error:
    print("skipped: %s lacks %s" % (sys.executable, error.name))
    sys.exit(77)

try:
    import pyarrow.parquet
except ImportError:
    pyarrow = None
try:
    import duckdb
except ImportError:
    duckdb = None
try:
    import pyspark.sql
except ImportError:
    pyspark = None


def as_json(value, name=None):
    """@return a value in the form of `convtrace show --json`: texts for numbers that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if name in ("sum", "l1") and isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return {key: as_json(item, key) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def shown(path):
    done = subprocess.run([TOOL, "show", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return [record for record in records if record["record"] != "meta"], done.returncode


class FolderTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, data):
        path = os.path.join(self.folder, "changed.ctrace")
        with open(path, "wb") as file:
            file.write(data)
        return path


class Codec(unittest.TestCase):
    def test_vectors_of_the_checksum(self):  # by libxxhash 0.8.1
        self.assertEqual(codec.xxh3_64(b""), 0x2D06800538D394C2)
        self.assertEqual(codec.xxh3_64(bytes(60)), 0x543396B68D640202)
        self.assertEqual(codec.checksum32(bytes(60)), 0x8D640202)

    def test_one_whole_frame_of_the_stated_size(self):
        frame = subprocess.run(["zstd", "-c"], input=b"", capture_output=True, check=True).stdout
        self.assertEqual(codec.unzstd(frame, 0), b"")
        data = random.Random(2).randbytes(5000) + bytes(5000)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "data")
            with open(path, "wb") as file:
                file.write(data)
            frame = subprocess.run(["zstd", "-c", path], capture_output=True, check=True).stdout
        self.assertEqual(codec.unzstd(frame, len(data)), data)
        for stored, size in ((frame, len(data) - 1), (frame, len(data) + 1), (frame[:-1], len(data)), (b"", 0), (b"", 1),
                             (frame + b"\0", len(data)), (frame * 2, len(data)), (data, len(data))):
            with self.assertRaisesRegex(ValueError, "zstd: "):
                codec.unzstd(stored, size)
        for at in range(len(frame)):  # content or error: never a crash, never another length
            damaged = bytearray(frame)
            damaged[at] ^= 0x55
            try:
                self.assertEqual(len(codec.unzstd(bytes(damaged), len(data))), len(data))
            except ValueError:
                pass


class Hashes(unittest.TestCase):
    def test_vectors_of_the_format(self):
        with open(os.path.join(ROOT, "format", "FORMAT.md")) as file:
            section = file.read().split("### 6.10 ")[1].split("## 7.")[0]
        stated = [int(text, 16) for text in re.findall(r"\| (0x[0-9a-f]{16}) \|", section)]
        vectors = (b"", b"\0", b"\0" * 4, bytes((1, 2, 3, 4, 5)), struct.pack("<4f", 1, 2, 3, 4), bytes(range(256)) * 4)
        self.assertEqual(stated, [hashes.hash_of(data) for data in vectors])

    def test_parts_in_any_grouping(self):
        data = random.Random(1).randbytes(5001)
        for cuts in ([], [64], [64, 64, 4096], list(range(0, 5000, 4))):
            ends = cuts + [len(data)]
            parts = [(hashes.hash_of(data[a:b]), b - a) for a, b in zip([0] + ends, ends)]
            self.assertEqual(convtrace.concat_hash(parts), hashes.hash_of(data))
            pairs = [(convtrace.concat_hash(parts[i:i + 2]), sum(size for _, size in parts[i:i + 2]))
                     for i in range(0, len(parts), 2)]
            self.assertEqual(convtrace.concat_hash(pairs), hashes.hash_of(data))
        self.assertEqual(convtrace.concat_hash([]), 0)

    def test_the_version_is_known_without_the_file_header(self):
        for name, version in ("tiny", 1), ("hashes", 2):
            path = os.path.join(ROOT, "tests", "golden", "v1", name + ".ctrace")
            with open(path, "rb") as file:
                data = file.read()
            self.assertEqual(convtrace.Trace(path).meta["hash_version"], version)
            with tempfile.NamedTemporaryFile(suffix=".ctrace") as damaged:
                damaged.write(b"\0" + data[1:])
                damaged.flush()
                self.assertEqual(convtrace.Trace(damaged.name).meta["hash_version"], version)

    def test_what_is_no_hash_is_refused(self):
        for parts in ([(1, 3), (1, 4)], [(-1, 4)], [(1 << 64, 4)], [(1, -4)]):
            with self.assertRaises(ValueError):
                convtrace.concat_hash(parts)


class Tables(unittest.TestCase):
    """The reader's own tables against those of the C++ sources."""

    def test_enumerations(self):
        with open(os.path.join(ROOT, "format", "model", "event_enums.h")) as file:
            lists = dict(re.findall(r"#define CONVTRACE_(\w+)\(X\)((?:.*\\\n)+.*\n)", file.read()))
        for macro, name in (("PHASES", "phase"), ("SAMPLE_OUTCOMES", "why"), ("CONFIDENCES", "confidence"), ("EXTENTS", "extent"),
                            ("CAPTURES", "capture"), ("PADDINGS", "padding"), ("MEMORY_SOURCES", "source"),
                            ("FINDING_KINDS", "finding"), ("LOSS_REASONS", "reason"), ("SYNC_KINDS", "sync"),
                            ("OP_MOMENTS", "moment"), ("COPY_KINDS", "kind_of_copy")):
            names = re.findall(r'X\(\w+, \d+, "([^"]*)"\)', lists.pop(macro))
            self.assertEqual(events._NAMES[name][macro == "SAMPLE_OUTCOMES":], tuple(names[macro == "SAMPLE_OUTCOMES":]))
        self.assertEqual(lists, {})

    def test_columns_and_fields(self):
        with open(os.path.join(ROOT, "format", "schema", "chunk.fbs")) as file:
            tables = {name: {field: (int(number), kind) for field, kind, number in
                             re.findall(r"(\w+):([][\w]+) \(id: (\d+)\)", fields)}
                      for name, fields in re.findall(r"table (\w+) {(.*?)}", file.read(), re.DOTALL)}
        widths = {"ubyte": 1, "bool": 1, "uint": 4, "ulong": 8, "string": 0}
        for name, kind in (*events._ROWS.items(), *events._TABLES.items()):
            number, table = tables["Chunk"][name]
            schema = tables[table.strip("[]")]
            self.assertEqual(kind.field, number)
            self.assertEqual({**{field: number for field, (number, _) in kind.fixed.items()}, **kind.varying},
                             {field: number for field, (number, _) in schema.items() if field != "back"}, name)
            if name in events._TABLES:
                self.assertEqual({field: width for field, (_, width) in kind.fixed.items()},
                                 {field: widths[kind] for field, (_, kind) in schema.items()}, name)


class Golden(unittest.TestCase):
    def test_every_event_as_the_tool_shows_it(self):
        self.assertTrue(GOLDEN)
        for path in GOLDEN:
            with self.subTest(path):
                trace = convtrace.Trace(path)
                events = [as_json(event) for event in trace]
                expected, code = shown(path)
                self.assertEqual(len(events), len(expected))
                for event, other in zip(events, expected):
                    self.assertEqual(event, other)
                self.assertEqual(trace.state == "complete", code == 0)

    def test_files_that_are_no_traces(self):
        refused = glob.glob(os.path.join(ROOT, "tests", "golden", "v1", "must_fail", "*.ctrace"))
        self.assertTrue(refused)
        for path in refused:
            with self.subTest(path), self.assertRaises(convtrace.NotATrace):
                convtrace.Trace(path)

    def test_meta(self):
        for path in GOLDEN:
            info = json.loads(subprocess.run([TOOL, "info", "--json", path], stdout=subprocess.PIPE,
                                             stderr=subprocess.DEVNULL).stdout)
            self.assertEqual(convtrace.Trace(path).meta, info["meta"])


class Damage(FolderTest):
    """No event is shown that was not recorded, and NotATrace is the only exception."""

    def setUp(self):
        super().setUp()
        self.path = max(GOLDEN, key=os.path.getsize)
        self.expected = {json.dumps(as_json(event), sort_keys=True) for event in convtrace.Trace(self.path)}
        with open(self.path, "rb") as file:
            self.data = file.read()

    def check(self, data):
        try:
            trace = convtrace.Trace(self.file(data))
            found = [json.dumps(as_json(event), sort_keys=True) for event in trace]
        except convtrace.NotATrace:
            return 0, None
        self.assertLessEqual(set(found), self.expected)
        return len(found), trace.state

    def test_cut_anywhere(self):
        seen = set()
        for size in range(0, len(self.data), 13):
            count, state = self.check(self.data[:size])
            self.assertNotEqual(state, "complete", size)
            seen.add(count)
        self.assertIn(len(self.expected), seen)

    def test_a_flipped_bit_is_reported_or_harmless(self):
        for at in range(0, len(self.data), 11):
            data = bytearray(self.data)
            data[at] ^= 1 << at % 8
            count, state = self.check(data)
            if count < len(self.expected):
                self.assertNotEqual(state, "complete", at)

    def test_other_files(self):
        for data in (b"", b"text\n" * 100, bytes(4096), self.data[:8] + b"\x02" + self.data[9:]):
            with self.assertRaises(convtrace.NotATrace):
                convtrace.Trace(self.file(data))


class Buffer:
    """A payload of one kind, from a writer that ignores all limits."""

    def __init__(self):
        self._builder = flatbuffers.Builder(0)

    def column(self, data, width=1):
        self._builder.StartVector(width, len(data) // width, width)
        self._builder.head -= len(data)
        self._builder.Bytes[self._builder.head:self._builder.head + len(data)] = data
        return self._builder.EndVector()

    def text(self, text):
        return self._builder.CreateString(text)

    def offsets(self, *targets):
        self._builder.StartVector(4, len(targets), 4)
        for target in reversed(targets):
            self._builder.PrependUOffsetTRelative(target)
        return self._builder.EndVector()

    def table(self, **fields):
        """Writes a table. f3=...: an offset in field 3. @return its offset"""
        self._builder.StartObject(64)
        for name, target in fields.items():
            self._builder.PrependUOffsetTRelativeSlot(int(name[1:]), target, 0)
        return self._builder.EndObject()

    def payload(self, identifier, **fields):
        self._builder.Finish(self.table(**fields), identifier)
        return bytes(self._builder.Output())


def dense(values, width):
    """@return numbers as a packed column."""
    planes = b"".join(bytes(value >> 8 * plane & 0xFF for value in values) for plane in range(width))
    return bytes([0x10 | width]) + planes


class Limits(unittest.TestCase):
    """FORMAT.md section 9: sizes beyond a limit are damage, and are found before memory is allocated."""

    def events(self, buffer, kinds, **fields):
        raw = buffer.payload(b"CTEV", f2=buffer.column(bytes(kinds)), **fields)
        return list(events.read_chunk(raw, len(kinds), convtrace.trace.Definitions(), lambda why: None))

    def refused(self, what, *arguments, **fields):
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        with self.assertRaisesRegex(flat.BadBuffer, what):
            self.events(*arguments, **fields)
        self.assertLess(tracemalloc.get_traced_memory()[1], 32 << 20)

    def launches(self, operands, rows):
        buffer = Buffer()
        table = buffer.table(f0=buffer.column(dense([0, 2][:rows] + [0] * (rows - 2), 1)),
                             f15=buffer.column(dense([operands], 2)))
        return buffer, [0] * rows, table

    def test_events(self):
        self.refused("more events", Buffer(), [99] * 65537)
        self.assertEqual(self.events(Buffer(), [99] * 65536), [])

    def test_operands(self):
        for operands, rows in ((4097, 1), (4096, 257), (64, 16385)):
            buffer, kinds, table = self.launches(operands, rows)
            self.refused("operands", buffer, kinds, f6=table)
        buffer, kinds, table = self.launches(4096, 2)
        self.assertEqual([len(event["operands"]) for event in self.events(buffer, kinds, f6=table)], [4096] * 2)

    def stats(self, **fixed):
        buffer = Buffer()
        columns = {name: buffer.column(dense([value], 2 if value > 255 else 1)) for name, value in fixed.items()}
        return buffer, [1], buffer.table(f46=buffer.column(bytes(8), 8), **columns)

    def test_dimensions_and_range_hashes(self):
        for what, fixed in (("dimensions", {"f15": 17}), ("range hashes", {"f16": 257}),
                            ("padding", {"f55": 4097})):
            buffer, kinds, table = self.stats(**fixed)
            self.refused(what, buffer, kinds, f7=table)
        buffer, kinds, table = self.stats(f15=16)
        self.assertEqual(self.events(buffer, kinds, f7=table)[0]["shape"], [0] * 16)

    def diagnostics(self, size, rows):
        buffer = Buffer()
        row = buffer.table(f2=buffer.text("x" * size))
        return buffer, [8] * rows, buffer.offsets(*[row] * rows)

    def test_texts_of_events(self):
        for what, size, rows in (("beyond the limit", 65537, 1), ("longer than their payload", 65536, 60000)):
            buffer, kinds, vector = self.diagnostics(size, rows)
            self.refused(what, buffer, kinds, f14=vector)
        buffer, kinds, vector = self.diagnostics(65536, 1)
        self.assertEqual(len(self.events(buffer, kinds, f14=vector)[0]["message"]), 65536)

    def test_tables_are_as_many_as_their_events(self):
        buffer, _, vector = self.diagnostics(1, 1 << 18)
        self.refused("262144 tables for 1 events", buffer, [8], f14=vector)

    def test_definitions(self):
        def define(make):
            buffer = Buffer()
            definitions = convtrace.trace.Definitions()
            definitions.add(buffer.payload(b"CTDF", **make(buffer)))
            return definitions

        with self.assertRaisesRegex(flat.BadBuffer, "longer than their payload"):
            define(lambda b: {"f1": b.offsets(*[b.text("x" * 60000)] * 10000)})
        with self.assertRaisesRegex(flat.BadBuffer, "more frames"):
            define(lambda b: {"f6": b.column(struct.pack("<H", 257), 2), "f7": b.column(bytes(4 * 257), 4)})
        with self.assertRaisesRegex(flat.BadBuffer, "more definitions"):
            define(lambda b: {"f6": b.column(bytes(2 * ((1 << 24) + 2)), 2)})
        cut = define(lambda b: {"f1": b.offsets(b.text(""), b.text("x" * 70000))})
        self.assertEqual(len(cut.text(1)), 65536)

    def test_a_packed_column_that_is_cut(self):
        with self.assertRaises(flat.BadBuffer):
            columns.unpack(b"\x01", 100)


@unittest.skipUnless(pyarrow, "no pyarrow")
class Parquet(FolderTest):
    def export(self, *arguments, expect):
        out = os.path.join(self.folder, "out")
        done = subprocess.run(
            [TOOL, "export", "--format", "parquet", "-o", out, *arguments],
            env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertRegex(done.stdout, r"^(.+: [\d,]+ files?, [\d,]+ bytes\n)?$")  # what was written
        return out

    def closed(self):
        return [path for path in GOLDEN if convtrace.Trace(path).state == "complete"]

    def test_rows_are_the_events(self):
        out = self.export(*self.closed(), expect=0)
        for kind, records in (("stats", ["stats"]), ("launches", ["launch"]), ("findings", ["finding"]),
                              ("allocations", ["alloc", "free"])):
            rows = pyarrow.parquet.read_table(os.path.join(out, kind)).to_pylist()
            events = [e for path in self.closed() for e in convtrace.Trace(path) if e["record"] in records]
            self.assertEqual(sorted(r["seq"] for r in rows), sorted(e["seq"] for e in events))
            self.assertEqual({r["rank"] for r in rows}, {e["rank"] for e in events})
        values = pyarrow.parquet.read_table(os.path.join(out, "stats")).to_pylist()
        integers = [v for v in values if v["sum_exact"] is not None]
        self.assertTrue(integers)
        for value in integers:
            self.assertEqual(float(value["sum_exact"]), value["sum"])

    def test_an_existing_folder_is_not_replaced(self):
        out = self.export(self.closed()[0], expect=0)
        self.export(self.closed()[0], expect=1)
        self.export(self.closed()[0], "--overwrite", expect=0)
        self.assertEqual(os.listdir(self.folder), [os.path.basename(out)])

    def test_only_an_earlier_export_is_replaced(self):
        trace = self.closed()[0]
        out = os.path.join(self.folder, "out")

        def refused(*traces):
            before = sorted(os.walk(self.folder))
            self.export(*traces, "--overwrite", expect=1)
            self.assertEqual(sorted(os.walk(self.folder)), before)

        os.mkdir(out)
        for name in ("notes.txt", "stats/notes.txt", "launches/rank=0/own.csv", "other/"):
            path = os.path.join(out, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if not name.endswith("/"):
                open(path, "w").close()
            refused(trace)
            shutil.rmtree(out)
        open(out, "w").close()
        refused(trace)
        os.remove(out)
        os.symlink(tempfile.gettempdir(), out)
        refused(trace)
        os.remove(out)
        self.export(trace, expect=0)
        inside = os.path.join(out, "stats", "rank=0", "trace.parquet")
        shutil.copy(trace, inside)
        link = os.path.join(self.folder, "link.ctrace")
        os.symlink(inside, link)
        refused(inside)
        refused(link)

    def test_numbers_beyond_the_signed_ones_keep_their_bits(self):
        from convtrace.exports import parquet

        for event in convtrace.Trace(self.closed()[0]):
            if event["record"] == "stats" and event["shape"]:
                break
        event.update(shape=[1 << 63, 3], address=(1 << 64) - 1)
        trace = type("Trace", (list,), {"rank": 0})([event])
        parquet.export(trace, "one", self.folder)
        row, = pyarrow.parquet.read_table(os.path.join(self.folder, "stats")).to_pylist()
        self.assertEqual((row["shape"], row["address"]), ([-1 << 63, 3], -1))

    def test_a_row_group_ends_before_it_takes_much_memory(self):
        from convtrace.exports import parquet

        operand = dict(param=0, word=0, offset=0, address=0, generation=0, confidence="pointer-base")
        launch = dict(record="launch", seq=0, operands=[operand] * 4096)
        trace = type("Trace", (list,), {"rank": 0})([launch] * 600)
        parquet.export(trace, "one", self.folder)
        file = pyarrow.parquet.ParquetFile(os.path.join(self.folder, "launches", "rank=0", "one.parquet"))
        self.assertEqual(file.metadata.num_rows, 600)
        self.assertGreater(file.metadata.num_row_groups, 1)

    def test_an_unclosed_trace_is_exported_and_said(self):
        with open(self.closed()[0], "rb") as file:
            data = file.read()
        path = os.path.join(self.folder, "cut.ctrace")
        with open(path, "wb") as file:
            file.write(data[:-64])
        self.export(path, expect=3)

    def test_no_trace(self):
        self.export(__file__, expect=1)
        self.assertEqual(os.listdir(self.folder), [])

    @unittest.skipUnless(duckdb, "no duckdb")
    def test_documented_query_in_duckdb(self):
        out = self.export(*self.closed(), expect=0)
        rows = duckdb.sql(documented_query("duckdb").replace("DIR", out)).fetchall()
        self.check_query(rows)

    @unittest.skipUnless(pyspark and shutil.which("java"), "no pyspark or no java")
    def test_documented_query_in_spark(self):
        out = self.export(*self.closed(), expect=0)
        spark = pyspark.sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        self.addCleanup(spark.stop)
        spark.read.parquet(os.path.join(out, "stats")).createOrReplaceTempView("stats")
        self.check_query([tuple(row) for row in spark.sql(documented_query("spark")).collect()])

    def check_query(self, rows):
        expected = {}
        for path in self.closed():
            for event in convtrace.Trace(path):
                if event["record"] == "stats" and event["capture"] != "hash":
                    key = event["rank"], event["scope"], event["slot"]
                    expected[key] = max(expected.get(key, 0), event["nan"] + event["pos_inf"] + event["neg_inf"])
        self.assertTrue(rows)
        for rank, scope, slot, worst in rows:
            self.assertEqual(expected[rank, scope, slot], worst)


def documented_query(engine):
    """The SQL of docs/analysis.md for one engine."""
    with open(os.path.join(ROOT, "docs", "analysis.md"), encoding="utf-8") as file:
        text = file.read()
    return text.split("-- " + engine + "\n", 1)[1].split("```", 1)[0]


if __name__ == "__main__":
    unittest.main()
