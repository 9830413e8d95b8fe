"""`convtrace export --format tensorboard` of real trainings, read back with TensorBoard's own reader."""
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from preload_test import PRELOAD, SHOW, SKIPPED
from short_run import long

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: %s has no tensorboard" % sys.executable)
    sys.exit(SKIPPED)

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "v1")
# Writes what it knows itself; before step 4 it waits for the file "go" if there is an argument "wait".
TRAIN = """
import json, os, sys, time
import torch

torch.manual_seed(0)
size = int(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(4, size), torch.nn.GELU(), torch.nn.Linear(size, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def norm(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).norm().item()

steps = []
for step in range(6):
    while step == 4 and "wait" in sys.argv and not os.path.exists("go"):
        time.sleep(0.05)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.zero_grad()
    x = torch.randn(4, 4)
    if step == 5 and "nan" in sys.argv:
        x[0, 0] = float("nan")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    steps.append({
        "loss": loss.item(), "norm/gradients": norm(p.grad for p in model.parameters()),
        "gradients/2": norm(p.grad for p in model[2].parameters()), "norm/parameters": norm(model.parameters()),
        "parameters/0": norm(model[0].parameters()),
        "update_ratio/largest": max(norm([p.detach() - b]) / norm([b]) for p, b in zip(model.parameters(), before))})
with open("known.json", "w") as file:
    json.dump(steps, file)
"""


class ExportedTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        with open(self.path("train.py"), "w") as file:
            file.write(TRAIN)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start_training(self, *arguments, name="run.ctrace"):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
        return subprocess.Popen(
            [sys.executable, "train.py", *arguments], cwd=self.folder,
            env={**kept, "LD_PRELOAD": PRELOAD, "CONVTRACE_OUTPUT": name, "OMP_NUM_THREADS": "1"})

    def train(self, *arguments, name="run.ctrace"):
        self.assertEqual(self.start_training(*arguments, name=name).wait(), 0)
        with open(self.path("known.json")) as file:
            return json.load(file)

    def start_export(self, *arguments, python=None):
        return subprocess.Popen(
            [SHOW, "export", "--format", "tensorboard", "-o", "out", *arguments], cwd=self.folder, stderr=subprocess.PIPE,
            universal_newlines=True, env={**os.environ, "PATH": "%s:%s" % (python or os.path.dirname(sys.executable), os.environ["PATH"])})

    def export(self, *arguments, expect=0, python=None):
        export = self.start_export(*arguments, python=python)
        _, said = export.communicate()
        self.assertEqual(export.returncode, expect, said)
        return said

    def scalars(self, *run):
        """@return {tag: {step: value}} of a run."""
        events = EventAccumulator(self.path("out", *run)).Reload()
        return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}

    def check(self, value, wanted, tolerance=1e-6):
        self.assertTrue(math.isclose(value, wanted, rel_tol=tolerance) or (math.isnan(value) and math.isnan(wanted)),
                        (value, wanted))


class Values(ExportedTest):
    def test_scalars_are_torchs(self):
        for size, spread in (4, 1e-3), (512, 0.5):  # of few elements an update is known, else estimated
            known = self.train(str(size), name="%d.ctrace" % size)
            self.export("--overwrite", "%d.ctrace" % size)
            scalars = self.scalars()
            for step, numbers in enumerate(known):
                for tag, wanted in numbers.items():
                    self.check(scalars[tag][step], wanted, spread if tag == "update_ratio/largest" else 1e-6)
            self.assertEqual(len(scalars["loss"]), len(known))
            self.assertEqual(set(scalars["nan"].values()), {0})
            self.assertGreater(scalars["overhead"][5], 0)

    def test_nan_is_counted_and_shown(self):
        self.train("4", "nan")
        self.export("run.ctrace")
        scalars = self.scalars()
        shown = subprocess.run([SHOW, "show", "--json", "--records", "stats", "--steps", "5", self.path("run.ctrace")],
                               stdout=subprocess.PIPE, check=True).stdout
        counted = sum(json.loads(line).get("nan", 0) for line in shown.splitlines())
        self.assertGreater(counted, 1)
        self.assertEqual((scalars["nan"][4], scalars["nan"][5]), (0, counted))
        self.assertTrue(math.isnan(scalars["loss"][5]) and math.isnan(scalars["norm/gradients"][5]))
        self.assertTrue(math.isfinite(scalars["update_ratio/largest"][4]))
        self.assertNotIn(5, scalars["update_ratio/largest"])

    def test_findings_are_texts_and_each_trace_is_a_run(self):
        self.export(os.path.join(GOLDEN, "full.ctrace"), os.path.join(GOLDEN, "values.ctrace"))
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["full-0", "values-1"])
        events = EventAccumulator(self.path("out", "full-0")).Reload()
        texts = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("findings")]
        shown = subprocess.run([SHOW, "show", "--json", "--records", "finding", os.path.join(GOLDEN, "full.ctrace")],
                               stdout=subprocess.PIPE, check=True).stdout.splitlines()
        self.assertTrue(shown)
        self.assertEqual(len(texts), len(shown))
        for text, finding in zip(texts, map(json.loads, shown)):
            self.assertTrue(text.startswith("%s %s: " % (finding["level"], finding["kind"])), text)
            self.assertIn(finding["message"], text)

    def test_of_many_modules_those_above_are_told(self):
        with open(self.path("train.py"), "w") as file:
            file.write("""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h = torch.nn.ModuleList(torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3)) for _ in range(30))
    def forward(self, x):
        return sum(layer(x) for block in self.h for layer in block)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
open("known.json", "w").write("0")
""")
        self.train()
        self.export("run.ctrace")
        for kind in "gradients", "parameters":
            modules = {tag for tag in self.scalars() if tag.startswith(kind + "/")}
            self.assertEqual(modules, {"%s/h.%d" % (kind, number) for number in range(30)})

    def test_only_an_earlier_export_is_replaced(self):
        trace = os.path.join(GOLDEN, "full.ctrace")
        self.export(trace)
        for options in [], ["--follow"]:
            self.assertIn("CT-2104", self.export(*options, trace, expect=1))
            self.export("--overwrite", *options, trace)
            self.assertEqual(len(os.listdir(self.path("out"))), 1)
        own = self.path("out", "events.out.tfevents.17.host.1.0")  # a training's own
        open(own, "w").close()
        self.assertIn("CT-2104", self.export("--overwrite", "--follow", trace, expect=1))
        self.assertTrue(os.path.exists(own))
        shutil.rmtree(self.path("out"))
        self.export("--follow", self.path("train.py"), expect=1)
        self.assertEqual(os.listdir(self.folder), ["train.py"])

    def test_without_the_package_and_with_other_formats(self):
        os.mkdir(self.path("bin"))
        with open(self.path("bin", "python3"), "w") as file:
            file.write("""#!%s
import runpy, sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorboard":
            raise ModuleNotFoundError("No module named 'tensorboard'", name=name)
sys.meta_path.insert(0, NotInstalled())
del sys.argv[0]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
""" % sys.executable)
        os.chmod(file.name, 0o755)
        said = self.export(os.path.join(GOLDEN, "full.ctrace"), expect=1, python=self.path("bin"))
        self.assertRegex(said, r"^convtrace: CT-2006 .*pip install tensorboard\n$")
        done = subprocess.run([SHOW, "export", "--format", "npy", "--follow", "-o", self.path("out"),
                               os.path.join(GOLDEN, "full.ctrace")], stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"CT-2001", done.stderr)
        self.assertFalse(os.path.exists(self.path("out")))


class Followed(ExportedTest):
    """A training stops before step 4 until it may go on."""

    def setUp(self):
        super().setUp()
        self.training = self.start_training("64", "wait")
        self.addCleanup(self.end, self.training)
        self.until(lambda: os.path.exists(self.path("run.ctrace")) and os.path.getsize(self.path("run.ctrace")) >= 64)
        self.following = self.start_export("--follow", "run.ctrace")
        self.addCleanup(self.end, self.following)
        self.until(lambda: os.path.exists(self.path("out")) and len(self.scalars().get("loss", {})) >= 2)
        self.assertIsNone(self.training.poll())

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()

    def until(self, condition):
        end = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_it_is_what_an_export_of_the_closed_trace_is(self):
        with open(self.path("go"), "w"):
            pass
        self.assertEqual((self.training.wait(60), self.following.wait(60), self.following.stderr.read()), (0, 0, ""))
        followed = self.scalars()
        self.assertEqual(sorted(followed["loss"]), list(range(6)))
        self.export("--overwrite", "run.ctrace")
        self.assertEqual(followed, self.scalars())

    def test_it_ends_with_a_writer_that_is_killed(self):
        self.training.kill()  # and is not waited for: a zombie writes nothing either
        self.assertEqual(self.following.wait(60), 3)
        self.assertIn("CT-2102", self.following.stderr.read())
        followed = self.scalars()
        self.export("--overwrite", "run.ctrace", expect=3)
        self.assertEqual(followed, self.scalars())

    @long('test_it_ends_with_a_writer_that_is_killed; convtrace_cli_test "show --follow: Ctrl-C"')
    def test_ctrl_c_ends_it(self):
        self.following.send_signal(signal.SIGINT)
        self.assertEqual((self.following.wait(60), self.following.stderr.read()), (0, ""))
        self.assertGreaterEqual(len(self.scalars()["loss"]), 2)


if __name__ == "__main__":
    unittest.main()
