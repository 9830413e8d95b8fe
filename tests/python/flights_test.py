"""Programs that wait too late for their asynchronous collectives get a finding on each rank, at the place of the use. Correct
waits, DDP, FSDP and functional collectives get none. Needs CONVTRACE_BUILD."""
import collections
import json
import subprocess
import unittest

from preload_test import SHOW, ProgramTest

USED = {  # the scope of the use ends with the way's name
    "step_before_wait": {"grad:weight", "grad:bias"}, "clipped_before_wait": {"grad_unclipped:weight", "grad_unclipped:bias"},
    "input_before_wait": {"input:0"}, "parameters_before_wait": {"param:weight", "param:bias"},
    "never_waited": {"grad:weight", "grad:bias"}}
WRITTEN = {"sent_is_written": "send", "result_is_written": "all_reduce"}


class BeforeTheWait(ProgramTest):
    def trace(self, way, **settings):
        done = self.run_program("awaiting.py", way, **settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.traces()), 2)

    def replayed(self, trace):
        done = subprocess.run([SHOW, "findings", "--replay", "--json", trace], stdout=subprocess.PIPE, universal_newlines=True)
        return [json.loads(line)["message"] for line in done.stdout.splitlines()]

    def test_each_use_is_an_error_at_its_place(self):
        self.trace("faulty")
        for trace in self.traces():
            found = self.records(trace, "findings", expect=4)
            # A collective's write during an op may by chance be taken for a write of the op: a warning.
            self.assertEqual({one["level"] for one in found if one["kind"] not in ("input-mutated", "overwritten")}, {"error"})
            used = collections.defaultdict(set)
            for one in found:
                if one["kind"] == "used-before-wait":
                    used[(one["scope"] or "").rpartition(".")[2]].add(one["slot"])
            for way, slots in USED.items():
                self.assertLessEqual(slots, used.pop(way, set()), way)
            self.assertIn("grad_output:0", {slot for slots in used.values() for slot in slots})
            messages = " ".join(one["message"] for one in found)
            for way, op in WRITTEN.items():
                self.assertRegex(messages, r"of %s, called at %s \(\S*awaiting.py:\d+\)[^.]*, was written by the program" % (op, way))
            self.assertIn("was used as input:0 of op Doubled", messages)
            overlaps = {one["op"]: one["bytes"] for one in found if one["kind"] == "receive-overlaps" and not one["other"]}
            over = [(one["slot"], one["bytes"]) for one in found if one["kind"] == "receive-overlaps" and one["other"]]
            self.assertEqual(over, [("grad:bias", 8)])
            self.assertEqual((overlaps["recv"], overlaps["all_gather"]), (12, 16))
            self.assertEqual(self.replayed(trace), [one["message"] for one in found])

    def test_nobody_else_is_accused(self):
        self.trace("correct")
        for trace in self.traces():
            self.check_clean(trace)
            moments = [one["moment"] for one in self.records(trace) if one["record"] == "op"]
            self.assertEqual(moments.count("in-flight"), moments.count("awaited"))
            self.assertGreater(moments.count("in-flight"), 30)

    def test_what_passed_in_a_step_without_values_may_have_ended_the_wait(self):
        self.trace("acknowledged", CONVTRACE_STEPS="0|2|4")
        for trace in self.traces():
            self.check_clean(trace)
            self.assertIn("awaited", [one["moment"] for one in self.records(trace) if one["record"] == "op"])


class BehindTheBackwardPass(ProgramTest):
    def test_collectives_are_communication(self):
        done = self.run_program("awaiting.py", "waited", "local_steps", "in_a_module")
        self.assertEqual(done.returncode, 0, done.stderr)
        phases = [(one["op"], one["phase"]) for one in self.records(self.traces()[0]) if one["record"] == "collective"]
        self.assertEqual({phase for op, phase in phases if op == "all_reduce"}, {"communication"})
        self.assertEqual({phase for op, phase in phases if op == "recv"}, {"forward"})


if __name__ == "__main__":
    unittest.main()
