"""Gradients that ranks reduce by hand: a message that is received over them and a flat buffer that is read before its sum has
come are named by check, and programs that look alike are not accused. Needs CONVTRACE_BUILD."""
import json
import subprocess
import unittest

from preload_test import SHOW, ProgramTest
from short_run import long


class FlatGradients(ProgramTest):
    def checked(self, way):
        """@return the findings above a hint."""
        done = self.run_program("flat_gradients.py", way)
        self.assertEqual(done.returncode, 0, done.stderr)
        traces = self.traces()
        self.assertEqual(len(traces), 2)
        done = subprocess.run([SHOW, "check", "--json", "-", *traces], stdout=subprocess.PIPE, universal_newlines=True)
        return json.loads(done.stdout)["findings"]

    def warned(self, way):
        return [one for one in self.checked(way) if one["level"] != "hint"]

    def test_a_message_over_gradients_that_are_reduced_is_named(self):
        found = self.checked("arena")
        parted, = (one for one in found if one["id"] == "replicas-parted")
        self.assertEqual((parted["step"], parted["level"]), (0, "error"))
        self.assertIn("recv has received into memory of gradients", parted["cause"])
        over = {(one["rank"], one["scope"], one["slot"], one["level"]) for one in found if one["id"] == "receive-overlaps"}
        self.assertEqual(over, {(rank, "0", slot, "warning") for rank in (0, 1) for slot in ("grad:weight", "grad:bias")})

    def test_a_broadcast_over_gradients_that_are_reduced(self):
        over = {(one["scope"], one["slot"], one["level"]) for one in self.checked("arena_broadcast") if one["id"] == "receive-overlaps"}
        self.assertEqual(over, {("0", slot, "warning") for slot in ("grad:weight", "grad:bias")})

    def test_a_flat_buffer_that_is_read_before_its_sum_has_come(self):
        found = self.checked("bucket")
        found = [one for one in found if one["id"] == "used-before-wait"]
        self.assertEqual({one["level"] for one in found}, {"hint"})
        self.assertIn(0, {one["rank"] for one in found})
        self.assertIn("4 gradients that the optimizer takes, from grad:weight of module 0 (call 0, backward) on, are what this rank had sent",
                      found[0]["text"])

    def test_nobody_else_is_accused(self):
        found = self.checked("bucket_waited")
        self.assertEqual([one for one in found if one["level"] != "hint" or one["id"] == "used-before-wait"], [])

    def check_clean_way(self, way):
        self.assertEqual([(one["id"], one["text"]) for one in self.warned(way)], [])

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_a_buffer_beside_the_gradients(self):
        self.check_clean_way("arena_beside")

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_gradients_that_are_dealt_out(self):
        self.check_clean_way("arena_whole")

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_rows_that_one_rank_has_worked_on(self):
        self.check_clean_way("arena_rows")

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_shards_of_a_flat_buffer(self):
        self.check_clean_way("arena_shards")

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_gradients_that_are_summed_up_for_a_log(self):
        self.check_clean_way("watched")

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_a_sum_that_comes_a_step_later(self):
        self.check_clean_way("delayed")

    @long("nobody_else_is_accused, and cases of flight_judge_test")
    def test_ranks_with_equal_data(self):
        self.assertNotIn("used-before-wait", {one["id"] for one in self.checked("equal")})


if __name__ == "__main__":
    unittest.main()
