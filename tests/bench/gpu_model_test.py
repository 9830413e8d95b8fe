#!/usr/bin/env python3
"""tests/bench/gpu_model.py: it fits the marks and the step that were measured, and ranks designs by what they do."""
import dataclasses
import unittest

import gpu_model as model
from gpu_model import DATA, DESIGNS, MEASURED, Model, Value


def step(design, kind="f32", device="H100"):
    return Model(device, DESIGNS[design]).step(model.submissions(kind))


class TheModel(unittest.TestCase):
    def test_a_launch_takes_what_the_marks_say(self):
        for count, size, *_, marks_us in DATA["marks"]["rows"]:
            self.assertAlmostEqual(Model("H100", MEASURED).launch([Value(size)] * count) / marks_us, 1, delta=0.12, msg=(count, size))

    def test_the_step_is_the_one_that_was_traced(self):
        """A GPT of L layers: inputs, outputs and their gradients of 9L+4 modules, 12L+3 parameters and gradients, data and loss."""
        values = sum(times * len(submitted) for times, submitted in model.submissions("f32"))
        self.assertEqual(values, 3 * (9 * 8 + 4) + 2 * (12 * 8 + 3) + 2)
        made = step("as measured (d87e342)")
        self.assertEqual(made.launches, 237)
        self.assertAlmostEqual(made.bytes / 1e9, 7.50, delta=0.01)

    def test_launches_explain_86_percent_of_the_measured_step_and_each_the_same_part_of_the_rest(self):
        made, measured = step("as measured (d87e342)"), DATA["measured"]["added_ms"]
        self.assertAlmostEqual(made.added_ms(0) / measured, 0.86, delta=0.005)
        self.assertAlmostEqual(model.in_program_us(), 7.8, delta=0.05)
        self.assertAlmostEqual(made.added_ms(model.in_program_us()), measured)

    def test_the_ratios_of_the_designs_on_an_h100(self):
        for design, f32, hashes in (("as measured (d87e342)", 1.212, 1.166), ("tickets", 1.192, 1.153), ("tickets, dedupe", 1.139, 1.105),
                                    ("log and fold", 1.111, 1.106), ("log and fold, dedupe", 1.078, 1.074)):
            self.assertAlmostEqual(model.predict("H100", design, "f32")[1], f32, delta=0.001, msg=design)
            self.assertAlmostEqual(model.predict("H100", design, "hash")[1], hashes, delta=0.001, msg=design)

    def test_half_the_bytes_are_not_half_the_time(self):
        f32, bf16 = step("tickets"), step("tickets", "bf16")
        self.assertEqual(bf16.launches, f32.launches)
        self.assertAlmostEqual(bf16.bytes / f32.bytes, 0.67, delta=0.01)
        self.assertGreater(bf16.kernels / f32.kernels, 0.85)

    def test_dedupe_takes_away_launches_and_a_fold_adds_one_for_16_values(self):
        self.assertEqual(step("tickets, dedupe").launches, 159)
        kept = sum(times * sum(not value.is_again for value in submitted) for times, submitted in model.submissions("f32"))
        self.assertEqual(step("log and fold, dedupe").launches - kept // 16 - 1,
                         sum(times * bool([v for v in submitted if not v.is_again]) for times, submitted in model.submissions("f32")))

    def test_where_memory_is_fast_instructions_bound_short_types(self):
        half, full, digest = Value(1 << 20, is_half=True), Value(1 << 20), Value(1 << 20, is_hash=True)
        h100, b200 = Model("H100", DESIGNS["tickets"]), Model("B200", DESIGNS["tickets"])
        memory = DATA["devices"]["B200"]["loop_tb_per_s"] * 1e6
        self.assertEqual({h100.rate(value) for value in (half, full, digest)}, {2.85e6})
        self.assertEqual((b200.rate(full), b200.rate(digest)), (memory, memory))
        self.assertLess(b200.rate(half), 0.85 * memory)
        fewer = Model("B200", dataclasses.replace(DESIGNS["tickets"], instructions=(16.0, 6.5)))
        self.assertEqual(fewer.rate(half), memory)

    def test_a_faster_device_takes_less_of_everything(self):
        for design in DESIGNS:
            for kind in "f32", "bf16", "hash":
                added = [model.predict(device, design, kind)[0] for device in ("H100", "H200", "B200")]
                self.assertEqual(added, sorted(added, reverse=True), (design, kind))


if __name__ == "__main__":
    unittest.main()
