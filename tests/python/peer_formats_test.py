"""`convtrace export` in the formats of similar tools, from real training runs, against torch itself."""
import csv
import json
import math
import os
import re
import subprocess
import sys
import unittest

from preload_test import ProgramTest, torch
from reader_test import TOOL


class PeerFormats(ProgramTest):
    shared = True

    def train(self, name, **settings):
        """Trains the LSTM. @return (its trace, {(step, phase, scope, slot): tensor})"""
        kept = os.path.join(self.folder, name + ".pt")
        trace = os.path.join(self.folder, name + ".ctrace")
        done = self.run_program("train.py", "lstm", kept, CONVTRACE_OUTPUT=trace, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return trace, {(step, phase, scope, slot): tensor for step, phase, scope, _, slot, tensor in torch.load(kept)}

    def export(self, form, *arguments, expect=0, out="out"):
        out = os.path.join(self.folder, out)
        done = subprocess.run(
            [TOOL, "export", "--format", form, "-o", out, *arguments],
            env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertRegex(done.stdout, r"^$" if expect == 1 else r"^%s: \d+ files?, [\d,]+ bytes\n$" % out)
        self.said = done.stderr
        return out

    def read(self, *path):
        with open(os.path.join(self.folder, *path)) as file:
            return file.read()


class Ort(PeerFormats):
    def test_files_and_order_are_the_subscribers_and_numbers_are_torchs(self):
        trace, kept = self.train("run")
        self.export("ort", trace)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out"))), ["step_0", "step_1", "step_2"])
        order = self.read("out", "step_1", "order.txt").split()
        self.assertEqual(order[:5], ["lstm_0th_output_forward", "lstm_1th_output_forward", "lstm_2th_output_forward",
                                     "head_0th_output_forward", "root_0th_output_forward"])
        self.assertEqual(sorted(order + ["order.txt"]), sorted(os.listdir(os.path.join(self.folder, "out", "step_1"))))
        self.assertIn("lstm_0th_output_backward", order)
        for file in order:
            scope, index, way = re.fullmatch(r"(\w+)_(\d)th_output_(forward|backward)", file).groups()
            slot = ("output:" if way == "forward" else "grad_output:") + index
            self.check_file(file, kept[1, way, "" if scope == "root" else scope, slot].to(torch.float64))

    def check_file(self, file, x):
        text = self.read("out", "step_1", file)
        number = r"([-+.\deinfa]+)"
        first, second, third, samples, signs, line = text.splitlines()
        title = re.sub("_(forward|backward)$", r" \1 run", file)
        self.assertEqual(first.rstrip(), "%s%s shape: %s dtype: torch.float32 size: torch.Size([%d])" % (
            ">" if file.startswith("root") else ">>", title, x.shape, x.numel()))
        found = re.fullmatch("min: %s max: %s, mean: %s, std: %s " % ((number,) * 4), second).groups()
        for value, wanted in zip(found, (x.min(), x.max(), x.mean(), x.std())):
            self.assertTrue(math.isclose(float(value), wanted.item(), rel_tol=1e-9, abs_tol=1e-12), (second, wanted))
        self.assertEqual(third, "nan: 0, inf: 0")
        self.assertTrue(samples.startswith("samples(evenly spread %d): tensor([" % (x.numel() if x.numel() <= 16 else 8)), samples)
        self.assertEqual(signs, "neg: %d, pos: %d, zero: %d," % ((x < 0).sum(), (x > 0).sum(), (x == 0).sum()))
        self.assertEqual(line, "=" * 16)

    def test_two_traces_are_merged_in_the_first_ones_order(self):
        base, _ = self.train("base")
        cand, _ = self.train("cand", CONVTRACE_INCLUDE="lstm*")
        self.export("ort", base, cand)
        order = self.read("out", "base-0", "step_0", "order.txt").split()
        merged = self.read("out", "merge_base-0", "step_1_.txt")
        self.assertEqual(merged, "".join(self.read("out", "base-0", "step_1", file) + "\n" for file in order))
        other = self.read("out", "merge_cand-1", "step_1_.txt")
        self.assertEqual(other, "".join(self.read("out", "cand-1", "step_1", file) + "\n" for file in order
                                        if file.startswith("lstm")))
        self.assertIn("tensor cand-1/step_1/head_0th_output_forward not exist\n", self.said)
        self.export("ort", "--overwrite", base)
        self.assertNotIn("merge_base-0", os.listdir(os.path.join(self.folder, "out")))

    def test_a_window_of_steps_ends_before_its_end(self):
        trace, _ = self.train("run")
        self.export("ort", "--start-step", "1", "--end-step", "2", trace)
        self.assertEqual(os.listdir(os.path.join(self.folder, "out")), ["step_1"])

    def test_only_an_earlier_export_is_replaced(self):
        trace, _ = self.train("run")
        out = self.export("ort", trace)
        self.export("ort", trace, expect=1)
        self.export("ort", "--overwrite", trace)
        with open(os.path.join(out, "notes.txt"), "w"):
            pass
        self.export("ort", "--overwrite", trace, expect=1)
        self.assertIn("notes.txt", os.listdir(out))


class Norms(PeerFormats):
    """`convtrace show --norms`: the numbers that users print to compare two runs by hand."""

    def test_they_are_torchs(self):
        trace, kept = self.train("run")
        done = subprocess.run([TOOL, "show", "--norms", "--json", trace], stdout=subprocess.PIPE, check=True)
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([step["step"] for step in steps], [0, 1, 2])
        for step in steps:
            gradients = {".".join(filter(None, (scope, slot[len("grad:"):]))): tensor.to(torch.float64)
                         for (number, _, scope, slot), tensor in kept.items()
                         if number == step["step"] and slot.startswith("grad:")}
            self.assertEqual(step["local_norms"].keys(), gradients.keys())
            for name, gradient in gradients.items():
                self.assertTrue(math.isclose(step["local_norms"][name], gradient.norm().item(), rel_tol=1e-9), name)
            whole = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm().item()
            self.assertTrue(math.isclose(step["gradient_norm"], whole, rel_tol=1e-9), (step, whole))
            loss, = (tensor.item() for (number, _, _, slot), tensor in kept.items()
                     if number == step["step"] and slot == "loss")
            self.assertEqual(step["losses"], [loss])


class StatisticCsv(PeerFormats):
    def rows(self, out="out"):
        with open(os.path.join(self.folder, out), newline="") as file:
            return list(csv.DictReader(file))

    def test_every_value_has_a_row_of_mindspores_columns(self):
        trace, kept = self.train("run")
        self.export("statistic-csv", trace)
        rows = self.rows()
        self.assertEqual(list(rows[0])[:6], ["Rank", "Step", "Op Type", "Op Name", "Task ID", "Stream ID"])
        self.assertEqual(list(rows[0])[-2:], ["MD5", "L2Norm Value"])
        full = [r for r in self.records(trace) if r["record"] == "stats" and "mean" in r]
        self.assertEqual(len(rows), len(full))
        x = kept[2, "forward", "head", "output:0"].to(torch.float64)
        row, = (r for r in rows if (r["Step"], r["Op Name"], r["IO"]) == ("2", "forward/head", "output") and r["Slot"] == "0")
        self.assertEqual(row["Shape"], "(3,1)")
        self.assertEqual((row["Data Type"], row["Count"], row["NaN Count"]), ("f32", "3", "0"))
        for column, wanted in (("Max Value", x.max()), ("Min Value", x.min()), ("Avg Value", x.mean()), ("L2Norm Value", x.norm())):
            self.assertTrue(math.isclose(float(row[column]), wanted.item(), rel_tol=1e-9), column)

    def test_only_an_earlier_export_is_replaced(self):
        trace, _ = self.train("run")
        out = self.export("statistic-csv", trace)
        self.export("statistic-csv", trace, expect=1)
        self.export("statistic-csv", "--overwrite", "--end-step", "1", trace)
        self.assertEqual({row["Step"] for row in self.rows()}, {"0"})
        with open(out, "w") as file:
            file.write("my own\n")
        self.export("statistic-csv", "--overwrite", trace, expect=1)
        self.assertEqual(self.read("out"), "my own\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["out", "run.ctrace", "run.pt"])


if __name__ == "__main__":
    unittest.main()
