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


class Next(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def shell(self, script, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
        kept.update(environment, PATH=f"{BIN}:{os.environ['PATH']}", OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
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
