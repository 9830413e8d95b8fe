#!/usr/bin/env python3
"""Planted faults in small training runs: the diff names phase, module and step of each.

usage: fault_matrix_test.py record        makes the runs (a ctest fixture)
       fault_matrix_test.py TestCase...
Needs CONVTRACE_BUILD, the build folder.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

BUILD = pathlib.Path(os.environ["CONVTRACE_BUILD"])
RUNS = BUILD / "tests" / "integration" / "faults"
PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "faulty_train.py"

# fault: (class, phase, module, slot, step) of the root
ROOTS = {
    "eps": ("diverged", "forward", "blocks.1.ln", "output:0", 0),
    "dropout": ("diverged", "forward", "blocks.1.drop", "output:0", 0),
    "dtype": ("shape-or-dtype-mismatch", "forward", "blocks.1.fc1", "param:weight", 0),
    "swapped": ("diverged", "forward", "blocks.0.fc1", "param:weight", 0),
    "reduction": ("diverged", "loss", "", "loss", 0),
    "lr": ("diverged", "optimizer", "embed", "param:weight", 0),
    "decay": ("diverged", "optimizer", "embed", "param:bias", 0),
    "data": ("diverged", "data", "", "input:0", 2),
    "bit": ("diverged", "forward", "blocks.2.fc1", "output:0", 2),
    "between": ("diverged", "forward", "blocks.1.fc2", "input:0", 0),
    "fused+formula": ("diverged", "forward", "blocks.1.drop", "output:0", 0),
}
# The same beside rounding of the candidate's own: planted into a run whose sums have another order. AdamW makes whole
# updates of rounding, so that in its second step nothing is equal any more.
ROUNDED = ["eps", "dropout", "reduction", "lr", "decay", "data", "bit", "between"]
OPTIMIZERS = ["", "adam+"]
SAME = ["none", "none2", "wrapper", "fused"]
ROUNDING = ["split1", "split2", "split4", "split8"]


def record():
    shutil.rmtree(RUNS, ignore_errors=True)
    RUNS.mkdir(parents=True)
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
    rounded = [prefix + one for prefix in OPTIMIZERS for one in (*ROUNDING, *(fault + "+split2" for fault in ROUNDED))]
    names = [*SAME, *ROOTS, *rounded]

    def train(share):
        subprocess.run([sys.executable, str(PROGRAM), str(RUNS)], input="\n".join(share), text=True, check=True,
                       env=plain | {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so")})

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # each run has one thread
        list(pool.map(train, (names[::2], names[1::2])))


def diff(base, candidate, *options):
    report = RUNS / f"{base}-{candidate}.json"
    # All runs have one command line. Faults of the size of rounding are looked for as between programs that need not agree to the bit.
    command = [BUILD / "bin" / "convtrace-diff", RUNS / f"{base}.ctrace", RUNS / f"{candidate}.ctrace", "--json", report, "--exact", "off", *options]
    run = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE)
    return run.returncode, json.loads(report.read_text()), run.stdout


def place(root):
    return root and (root["class"], root["phase"], root["scope"], root["slot"], root["step"])


class FaultTestCase(unittest.TestCase):
    def test_every_planted_fault_is_named_in_both_directions(self):
        for fault, root in ROOTS.items():
            with self.subTest(fault=fault):
                code, report, text = diff("none", fault)
                self.assertEqual((code, place(report["root"])), (1, root), text)
                code, back, text = diff(fault, "none")
                self.assertEqual((code, place(back["root"])), (1, root), text)
                self.assertEqual(report["counts"], back["counts"])

    def test_rounding_of_the_candidates_own_hides_none(self):
        for prefix in OPTIMIZERS:
            for fault in ROUNDED:
                with self.subTest(fault=prefix + fault):
                    code, report, text = diff(prefix + "split1", prefix + fault + "+split2")
                    self.assertEqual((code, place(report["root"])), (1, ROOTS[fault]), text)

    def test_the_text_says_what_the_phase_means(self):
        for fault, words in {"data": "the data differ", "reduction": "the forward pass agrees, the loss does not",
                             "lr": "loss and gradients agree, the updated weights do not",
                             "decay": "only parameters of one dimension differ"}.items():
            self.assertIn(words, diff("none", fault)[2])

    def test_weights_that_differ_from_the_beginning_are_said_to(self):
        self.assertIn("weights differ before step 0", diff("none", "swapped")[2])

    def test_a_change_between_two_modules_is_told_where_it_is(self):
        text = " ".join(diff("none", "between")[2].split())
        self.assertIn("DIVERGED at step 0, forward, blocks.1.fc2 (call 0): input:0", text)
        self.assertIn("between blocks.1.drop, whose output agrees, and this call makes the difference", text)


class SameTestCase(unittest.TestCase):
    def test_a_run_and_its_repetition_are_identical(self):
        code, report, text = diff("none", "none2")
        self.assertEqual((code, report["verdict"], report["root"], report["first_bit_difference"]), (0, "same", None, None), text)
        self.assertEqual(report["counts"]["identical"], report["compared"]["values"])

    def test_a_wrapper_or_a_fused_activation_diverges_nowhere(self):
        for other in ("wrapper", "fused"):
            code, report, text = diff("none", other)
            self.assertEqual((code, report["verdict"]), (0, "same"), text)
            self.assertGreater(report["counts"]["identical"], 0.8 * report["compared"]["values"])


class NoiseTestCase(unittest.TestCase):
    def test_sums_in_another_order_never_diverge_beside_their_like(self):
        noise = ["--noise", RUNS / "split4.ctrace", RUNS / "split8.ctrace"]
        code, report, text = diff("split1", "split2", *noise)
        self.assertEqual((code, report["verdict"]), (0, "same"), text)
        self.assertIsNotNone(report["first_bit_difference"])

    def test_nor_without_them(self):
        for prefix in OPTIMIZERS:
            for other in ROUNDING[1:]:
                with self.subTest(other=prefix + other):
                    code, report, text = diff(prefix + "split1", prefix + other)
                    self.assertEqual((code, report["verdict"]), (0, "same"), text)
                    self.assertEqual(report["agreement"], "rounding")
                    self.assertIn("ROUNDING: no value differs by more than rounding explains\n", text)


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    else:
        unittest.main()
