"""The `next` commands of convtrace-diff, pasted as they are: each leads to the same verdict or a sharper one."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from short_run import long

if importlib.util.find_spec("torch") is None:
    print("skipped: %s has no torch" % sys.executable)
    sys.exit(77)

BIN = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin"
PROGRAM = """
import os, torch
torch.manual_seed(0)
model = torch.nn.Sequential()
model.add_module("embed", torch.nn.Linear(8, 16))
model.add_module("act", torch.nn.GELU())
model.add_module("head", torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(4, 8)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

# A change for each word of the command line.
WORDS = """
import os, sys, torch
from torch import nn
words = sys.argv[1:]
torch.manual_seed(1 if "seed" in words else 0)
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * (2.02 if "backward" in words else 2)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.drop, self.head = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 4)
    def forward(self, x, labels):
        x = self.drop(self.norm(self.embed(x)))
        if "compiled" in words: return self.head(part(x)).square().mean()
        if "nan" in words and step == 1: x = x / (x - x)
        loss = nn.functional.cross_entropy(self.head(Double.apply(x)), labels)
        return loss + 0.01 * self.embed.weight.square().sum() if "penalty" in words else loss
def part(x):
    return torch.sin(x) * (1.02 if "region" in words else 1) + x @ torch.ones(16, 16)
if "compiled" in words: part = torch.compile(part)
net = Net()
if "buffer" in words: net.norm.running_mean += 0.5
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
data = torch.Generator().manual_seed(5 if "data" in words else 4)
if "ranks" in words: torch.distributed.init_process_group("gloo")
for step in range(4):
    x, labels = torch.randn(12, 8, generator=data), torch.randint(0, 4, (12,), generator=data)
    if "labels" in words: labels = (labels + 1) % 4
    optimizer.zero_grad()
    net(x, labels).backward()
    if "gradient" in words and step == 1 and os.environ.get("RANK") != "0": net.head.weight.grad.mul_(1.1)
    if "ranks" in words:
        for p in net.parameters(): torch.distributed.all_reduce(p.grad)
    if "clipped" in words: nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    if "written" in words and step == 1: net.embed.weight.data[3] = 0
    if "rate" in words and step == 1: optimizer.param_groups[0]["lr"] *= 1.1
    if "evaluated" in words:
        with torch.no_grad(): net.eval()(x * 2, labels), net.train()
"""


class Next(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def shell(self, script, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
        kept.update(environment, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
                    PATH=f"{BIN}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
        return subprocess.run(["bash", "-c", script], cwd=self.folder, env=kept, text=True, timeout=200,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def write(self, program):
        (self.folder / "train.py").write_text(program)

    def record(self, name, program, options="", **environment):
        self.write(program)
        done = self.shell(f"convtrace run -o {name}.ctrace {options} -- {sys.executable} train.py", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    def diff(self, base="base", cand="cand"):
        path = self.folder / f"{cand}.json"
        done = self.shell(f"convtrace-diff {base}.ctrace {cand}.ctrace --json {path}")
        return done.returncode, json.loads(path.read_text())

    def test_a_write_that_torch_does_not_count_is_not_called_equal_weights(self):
        write = "    if step == 1: model.embed.weight.data[5] = 0\n"  # misses the inspected elements
        cases = ("model.embed.weight.data[5] = 0", "model.embed.weight.detach().numpy()[5, 3] = 9")
        self.record("base", PROGRAM)
        for number, line in enumerate(cases):
            with self.subTest(line):
                self.record(f"cand{number}", PROGRAM + write.replace(cases[0], line))
                code, report = self.diff(cand=f"cand{number}")
                root = report["root"]
                self.assertEqual((code, root["scope"], root["slot"]), (1, "embed", "output:0"))
                self.assertIsNone(root["weights_agree"])
                told = self.shell(f"convtrace-diff base.ctrace cand{number}.ctrace").stdout
                self.assertIn("its weights agree behind step 1's update, and were not compared at this use", " ".join(told.split()))
                self.assertTrue(any("--ops embed" in command for command in report["next"]), report["next"])
        for name, program in (("base-ops", PROGRAM), ("cand-ops", PROGRAM + write)):
            self.record(name, program, "--ops embed --steps 2")
        code, report = self.diff("base-ops", "cand-ops")
        self.assertEqual((code, report["root"]["known_as"]), (1, "parameter embed.weight"))

    def check_change(self, old, new, base="", cand="", program=PROGRAM):
        """One file was changed. The block is pasted with the candidate's file in place, and again with the baseline's."""
        changed = program.replace(old, new)
        self.assertNotEqual(changed, program)
        self.record("base", program, base)
        self.record("cand", changed, cand)
        code, report = self.diff()
        self.assertEqual(code, 1, report)
        block = "\n".join(report["next"])
        done = self.shell(block)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("train.py: FAILED", done.stdout)
        self.write(program)
        done = self.shell(block)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        code, sharper = self.diff("root-base", "root-cand")
        self.assertEqual(code, 1)
        # The values are stored: where they are the root's, the verdict has the elements, and nothing is left to record.
        same = [sharper["root"][key] == report["root"][key] for key in ("step", "phase", "scope", "slot")]
        self.assertTrue(all(same) or sharper["root"]["op"], (report["root"], sharper["root"]))
        return report, sharper

    def test_a_module(self):
        _, sharper = self.check_change("GELU()", "GELU(approximate='tanh')")
        self.assertIsNotNone(sharper["root"]["elements"])
        self.assertEqual(sharper["next"], [])

    def check_words(self, word, start=None, trace=".ctrace", words=""):
        """The change is a word of the command line, so that the block alone does it all.

        @return both reports; of the second one None if there is nothing to do next
        """
        self.write(WORDS)
        for name, more in (("base", ""), ("cand", word)):
            done = self.shell(f"convtrace run --overwrite -o {name}{trace} -- {start or sys.executable} train.py {words} {more}")
            self.assertEqual(done.returncode, 0, done.stderr)
        ends = trace if trace == ".ctrace" else ""
        told = self.report(f"base{ends}", f"cand{ends}")
        if not told["next"]:
            return told, None
        done = self.shell("\n".join(told["next"]))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        sharper = self.report(f"root-base{ends}", f"root-cand{ends}")
        told_root, root = told["root"], sharper["root"]
        same = all(told_root[key] == root[key] for key in ("step", "phase", "scope", "slot"))
        self.assertTrue(root["elements"] or told_root["base"]["count"] == 1 or root["op"], sharper["headline"])
        self.assertTrue(same or root["op"], sharper["headline"])
        self.assertEqual(sharper["next"], [], "it is not printed again when the values are there")
        return told, sharper

    def report(self, base, cand):
        done = self.shell(f"convtrace-diff {base} {cand} --json report.json")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return json.loads((self.folder / "report.json").read_text())

    def test_labels(self):
        told, sharper = self.check_words("labels")
        self.assertIn(told["root"]["op"], ("aten::cross_entropy_loss", None))

    @long("test_labels")
    def test_other_places(self):
        for word in ("backward", "buffer", "data", "nan", "seed", "gradient", "written", "rate", "penalty"):
            with self.subTest(word):
                told, sharper = self.check_words(word)
                self.assertIsNotNone(sharper, told["headline"])

    @long("test_labels")
    def test_what_is_told_has_nothing_next(self):
        for word in ("clipped",):
            with self.subTest(word):
                told, sharper = self.check_words(word)
                self.assertEqual((told["cause"]["rule"], sharper), ("setting", None))

    @long("diff_test 'next commands: what they record'")
    def test_a_compiled_region(self):
        told, sharper = self.check_words("region", words="compiled")
        self.assertIn("--compiled all", "\n".join(told["next"]))
        self.assertRegex(sharper["root"]["op"], "^inductor::")

    @long("diff_test 'next commands: a job that torchrun started is started by it'")
    def test_a_job(self):
        start = "torchrun --standalone --nproc-per-node 2"
        self.check_words("backward", start=start, trace="/r%r.ctrace", words="ranks")
        told, sharper = self.check_words("gradient", start=start, trace="/r%r.ctrace", words="ranks")
        self.assertEqual((told["cause"]["rule"], sharper), ("written", None))

    @long("test_a_module; the option: diff_test 'next commands: what they record'")
    def test_an_optimizer(self):
        report, _ = self.check_change("lr=0.01", "lr=0.011")
        self.assertIn("--optimizer-state 1", "\n".join(report["next"]))

    @long("test_a_module; the option: diff_test 'next commands: what they record'")
    def test_code_in_no_module(self):
        between = PROGRAM.replace("model(x)", "model.head(model.act(model.embed(x)) * 1.0)")
        self.check_change("* 1.0", "* 1.01", program=between)

    @long("diff_test 'next commands: what they record'")
    def test_an_environment_variable(self):
        program = PROGRAM.replace("x = ", "x = float(os.environ.get('MKL_CBWR') or 1) * ")
        self.record("base", program, MKL_CBWR="2")
        self.record("cand", program)
        code, report = self.diff()
        self.assertEqual(code, 1, report)
        done = self.shell("\n".join(report["next"]))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    @long("diff_test 'next commands: what they record'")
    def test_a_program_that_does_not_repeat(self):
        program = PROGRAM.replace("x = ", "x = os.urandom(1)[0] * ")
        self.record("base", program)
        self.record("cand", program)
        code, report = self.diff()
        self.assertEqual(code, 1, report)
        done = self.shell("\n".join(report["next"]))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("DOES NOT REPEAT", done.stdout)


if __name__ == "__main__":
    unittest.main()
