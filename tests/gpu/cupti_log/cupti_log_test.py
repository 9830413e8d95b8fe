"""The recorder of CUPTI's calls and the replay of its logs, on the double: what comes out is what a trace of the program
has.

usage: cupti_log_test.py BUILD SOURCE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
BIN = BUILD / "gpu-check" / "bin"
MEMORY = BUILD / "tests" / "integration" / "programs" / "cuda_memory"
GOLDEN = SOURCE / "tests" / "golden" / "cupti"
PROGRAMS = ([MEMORY], [MEMORY, "context"], [BIN / "gpu_alias", "graph-pool"],
            [BIN / "gpu_alias", "missing-record-stream"], [BIN / "gpu_launches", "--launches", "500", "--churn"], [BIN / "gpu_operands"])
FAILURES = ("cuMemUnmap:1", "cuMemFree_v2:2", "cuMemAlloc_v2:1", "cuMemcpyAsync:1")
# Fields that differ between processes; generations do if an allocator reports its blocks.
HANDLES = ("address", "destination", "source", "stream", "event", "generation")
# Fields that depend on the time, or on the gate, which CUPTI does not know.
LEFT_OUT = ("seq", "t_ns", "rank", "step", "thread", "operands", "sampled", "why")


def comparable(events):
    """@return the events without fields that differ between processes; handles are numbered in order of appearance."""
    numbers = {}

    def numbered(key, value):
        if key not in HANDLES or not isinstance(value, int):
            return value
        return numbers.setdefault((key == "generation", value), len(numbers))

    for event in events:
        if event["record"] in ("alloc", "free", "copy", "sync", "launch"):
            yield {key: numbered(key, value) for key, value in event.items() if key not in LEFT_OUT}


class CuptiLogTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, command, **settings):
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "fakecuda"), "FAKECUDA_DEVICES": "2",
                       **{key: str(value) for key, value in settings.items()}}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return done.returncode, done.stdout if command[0] == MEMORY else ""  # others print times

    def replay(self, *arguments):
        return subprocess.run([BIN / "cupti_replay", *arguments], capture_output=True, text=True)

    def test_a_log_replays_to_the_events_of_a_trace(self):
        for command, failure in [(program, "") for program in PROGRAMS] + [([MEMORY], failure) for failure in FAILURES]:
            with self.subTest(command=command, failure=failure):
                fails = {"FAKECUDA_FAIL": failure} if failure else {}
                log, trace = self.folder / "log", self.folder / "trace"
                plain = self.run_program(command, **fails)
                self.assertEqual(plain, self.run_program(
                    command, CUDA_INJECTION64_PATH=BIN / "libconvtrace_cupti_log.so", CUPTI_LOG_OUT=log, **fails))
                self.assertEqual(plain, self.run_program(
                    command, LD_PRELOAD=BUILD / "lib" / "libconvtrace.so", CONVTRACE_OUTPUT=trace,
                    CONVTRACE_OVERWRITE=1, CONVTRACE_MODE="launches", **fails))
                replayed = self.replay(log)
                self.assertEqual((replayed.returncode, replayed.stderr), (0, ""))
                shown = subprocess.run([BUILD / "bin" / "convtrace", "show", "--json", trace], capture_output=True, text=True)
                wanted = [event for event in map(json.loads, shown.stdout.splitlines())
                          if event.get("why") != "run by a graph launch"  # CUPTI sees the graph's launch alone
                          and event.get("source") != "framework"]
                events = list(comparable(map(json.loads, replayed.stdout.splitlines())))
                self.assertGreater(len(events), 5)
                wanted = list(comparable(wanted))
                for event, one in zip(events, wanted):
                    if event.get("kernel") == "(unnamed)":  # CUPTI names no kernel of a launch on several devices
                        one.update(kernel=event["kernel"], family=event["family"])
                self.assertEqual(events, wanted)

    def test_what_a_log_lacks_is_seen(self):
        """Each end of a call that the events rest on."""
        lines = (GOLDEN / "memory.log").read_text().splitlines(keepends=True)
        changed = self.folder / "log"
        self.assertEqual(self.replay(GOLDEN / "memory.log", GOLDEN / "memory.events").returncode, 0)
        for call, site in (("cuMemAlloc_v2", "exit"), ("cuMemFree_v2", "enter"), ("cuMemMap", "exit"),
                           ("cuLaunchKernel", "exit"), ("cuStreamCreate", "exit"), ("cuMemcpyBatchAsync_v2", "exit"), ("cuMemCreate", "exit")):
            found = [i for i, line in enumerate(lines) if '"call":"%s"' % call in line and '"site":"%s"' % site in line]
            self.assertTrue(found, call)
            changed.write_text("".join(lines[:found[0]] + lines[found[0] + 1:]))
            done = self.replay(changed, GOLDEN / "memory.events")
            self.assertEqual(done.returncode, 1, call)
            self.assertIn("expected", done.stdout)
        changed.write_text("".join(lines[:-2]))  # both ends of the last free
        self.assertEqual(self.replay(changed, GOLDEN / "memory.events").returncode, 1)

    def test_a_damaged_log_is_told(self):
        whole = (GOLDEN / "memory.log").read_text()
        for text in ("", whole[:-20], whole.split("\n", 1)[1], whole.replace('"call"', '"called"', 1),
                     whole.replace('"id":', '"it":', 1)):
            path = self.folder / "log"
            path.write_text(text)
            done = self.replay(path)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("cupti_replay: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
