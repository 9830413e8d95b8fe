"""A program that calls NCCL through ctypes, as vLLM does, over the doubles of driver and NCCL: its calls are in the trace,
with their values, and count in the slot that the observer reads. Needs CONVTRACE_BUILD."""
import os
import unittest

from preload_test import BUILD, ProgramTest

DOUBLES = os.path.join(BUILD, "fakecuda")


class Ctypes(ProgramTest):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(DOUBLES, "libnccl.so.2")):
            self.skipTest("the doubles are not built")

    def test_of_nccl_is_recorded(self):
        plain = self.run_program("nccl_ctypes.py", DOUBLES, preload=False)
        traced = self.run_program("nccl_ctypes.py", DOUBLES, LD_LIBRARY_PATH=DOUBLES)
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), plain.stderr + traced.stderr)
        self.assertEqual((plain.stdout, traced.stdout), ("0 calls recorded\n", "3 calls recorded\n"))
        trace, = self.traces()
        records = self.records(trace)
        calls = [r for r in records if r["record"] == "collective"]
        self.assertEqual([(c["op"], c["number"], c["group_size"], c["sent"], c["received"]) for c in calls],
                         [("all_reduce", 0, 1, 8, 8), ("broadcast", 1, 1, 8, 8), ("all_reduce", 2, 1, 8, 8)])
        values = {(r["collective"], r["slot"]): r["sum"] for r in records if r["record"] == "stats"}
        self.assertEqual(values, {(c["id"], slot): 28 for c in calls for slot in ("sent:0", "received:0")})


if __name__ == "__main__":
    unittest.main()
