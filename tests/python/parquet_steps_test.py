"""The export to Parquet by steps: `convtrace export --format parquet --by steps`."""
import os
import shutil
import subprocess
import sys
import unittest
import unittest.mock

import reader_test as reader

try:
    import pyarrow.parquet
except ImportError:
    print("skipped: %s lacks pyarrow" % sys.executable)
    sys.exit(77)


class BySteps(reader.FolderTest):
    export = reader.Parquet.export
    closed = reader.Parquet.closed

    def test_by_steps_has_the_rows_of_all_ranks(self):
        from convtrace.exports import parquet, parquet_steps

        traces = [type("Trace", (list,), {"rank": rank})(
            [dict(record="launch", seq=seq, step=None if seq % 7 == 0 else seq // 10, why="rank %d" % rank) for seq in range(200)])
            for rank in (11, 0, 2)]
        traces[0] += [dict(record="launch", seq=200 + seq, step=30) for seq in range(3000)]
        with unittest.mock.patch.multiple(parquet_steps, _BUCKET_BYTES=1, _LEAST_BYTES=0, _MOST_BYTES=1 << 12, _ROW_GROUP=100), \
                unittest.mock.patch.object(parquet, "_ROW_GROUP", 40):
            for number, trace in enumerate(traces):
                parquet_steps.export(trace, "trace-%d" % number, self.folder)
            parquet_steps.join(self.folder)
        self.assertTrue(parquet_steps.is_export(self.folder))
        self.assertFalse(parquet.is_export(self.folder))
        launches = os.path.join(self.folder, "launches")
        first_steps = sorted(int(name.split("=")[1]) for name in os.listdir(launches))
        self.assertGreater(len(first_steps), 5)
        seen, parts = {}, 0
        for first, end in zip(first_steps, [*first_steps[1:], 1 << 32]):
            folder, ranks = os.path.join(launches, "first_step=%d" % first), []
            parts = max(parts, len(os.listdir(folder)))
            for part in range(len(os.listdir(folder))):
                for row in pyarrow.parquet.ParquetFile(os.path.join(folder, "part-%d.parquet" % part)).read().to_pylist():
                    ranks.append(row["rank"])
                    seen.setdefault(row["rank"], []).append(row["seq"])
                    self.assertTrue(row["step"] is None or first <= row["step"] < end, (first, row["step"], end))
            self.assertEqual(ranks, sorted(ranks))
        self.assertGreater(parts, 1)
        self.assertEqual(seen, {trace.rank: [event["seq"] for event in trace] for trace in traces})

    def test_by_steps_and_by_rank_have_the_same_rows(self):
        traces = self.closed()
        tables = {}
        for by in ("rank", "steps"):
            out = self.export(*traces, "--by", by, expect=0)
            tables[by] = [pyarrow.parquet.read_table(os.path.join(out, kind)).to_pylist()
                          for kind in ("stats", "launches", "allocations", "findings")]
            for rows in tables[by]:
                for row in rows:
                    row.pop("first_step", None)
                rows.sort(key=lambda row: (row["rank"], row["seq"]))
            shutil.rmtree(out)
        self.assertEqual(tables["steps"], tables["rank"])
        self.assertTrue(tables["rank"][0])

    def test_by_steps_is_for_parquet(self):
        command = [os.path.join(reader.BUILD, "bin", "convtrace"), "export", "--format", "npy", "--by", "steps", "-o",
                   os.path.join(self.folder, "out"), self.closed()[0]]
        self.assertEqual(subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode, 2)


if __name__ == "__main__":
    unittest.main()
