"""Two runs with unlike numbers of backward passes in a step: what is no fault, and what is told of one."""
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
# `parts` micro-batches a step, each passed back by itself; --sum: passed back together.
PARTS = """
import sys, torch
parts, options = int(sys.argv[1]), sys.argv[2:]
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 5))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
lossy = torch.nn.CrossEntropyLoss()
for step in range(8):
    x, y = torch.randn(16, 8), torch.randint(5, (16,))
    optimizer.zero_grad()
    losses = []
    for k, (a, b) in enumerate(zip(x.chunk(parts), y.chunk(parts))):
        if "--bf16" in options:
            with torch.autocast("cpu", torch.bfloat16): output = net(a)
        else:
            output = net(a)
        losses.append(lossy(output.float(), b) / (1 if "--undivided" in options else parts))
        if "--odd" in options and k % 2 == 0: continue
        if "--sum" not in options: losses[-1].backward(retain_graph="--twice" in options)
        if "--twice" in options: losses[-1].backward()
    if "--sum" in options: sum(losses).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
"""
# Two optimizers take turns; the critic is trained `turns` times.
TURNS = """
import sys, torch
torch.manual_seed(0)
maker, critic = torch.nn.Linear(4, 2), torch.nn.Linear(2, 1)
of_maker, of_critic = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())
for step in range(4):
    noise, real = torch.randn(8, 4), torch.randn(8, 2)
    for turn in range(int(sys.argv[1])):
        of_critic.zero_grad()
        (critic(maker(noise).detach()) - critic(real)).mean().backward()
        of_critic.step()
    of_maker.zero_grad()
    critic(maker(noise)).mean().neg().backward()
    of_maker.step()
"""


class Passes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "parts.py").write_text(PARTS)
        (cls.folder / "turns.py").write_text(TURNS)

    def shell(self, *command):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
        kept.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run(command, cwd=self.folder, env=kept, text=True, timeout=200, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def trace(self, words):
        path = self.folder / (words.replace(" ", "_") + ".ctrace")
        if not path.exists():
            done = self.shell(BIN / "convtrace", "run", "--output", path, "--", sys.executable, *words.split())
            self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def diff(self, base, cand):
        path = self.folder / "report.json"
        done = self.shell(BIN / "convtrace-diff", self.trace(base), self.trace(cand), "--json", path)
        return done.returncode, json.loads(path.read_text()), done.stdout

    def check_same(self, base, cand, passes):
        for one, other, counts in ((base, cand, passes), (cand, base, passes[::-1])):
            code, report, text = self.diff(one, other)
            self.assertEqual((code, report["root"]), (0, None), text)
            self.assertEqual(report["per_step"][0]["passes"], {"base": counts[0], "cand": counts[1]})
            self.assertIn("%d | %d backward passes in step 0" % counts, " ".join(text.split()))

    def check_counted(self, base, cand, passes):
        for one, other, counts in ((base, cand, passes), (cand, base, passes[::-1])):
            code, report, text = self.diff(one, other)
            self.assertEqual((code, report["root"]["step"]), (1, 0), text)
            said = "backward passes in the step: %d in the baseline, %d in the candidate" % counts
            self.assertEqual(report["cause"]["text"][:len(said)], said, text)

    def test_one_batch_in_four_parts_is_no_fault(self):
        self.check_same("parts.py 4", "parts.py 1", (4, 1))

    def test_losses_that_are_not_divided(self):
        self.check_counted("parts.py 1", "parts.py 4 --undivided", (1, 4))

    @long("test_one_batch_in_four_parts_is_no_fault")
    def test_the_same_in_bf16(self):
        self.check_same("parts.py 4 --bf16", "parts.py 1 --bf16", (4, 1))

    @long("passes_test of diff_test: 'losses of unlike counts are paired by value'")
    def test_losses_that_are_passed_back_together_are_no_fault(self):
        self.check_same("parts.py 4", "parts.py 4 --sum", (4, 1))

    @long("test_losses_that_are_not_divided")
    def test_a_loss_that_is_passed_back_twice(self):
        self.check_counted("parts.py 4", "parts.py 4 --twice", (4, 8))

    @long("test_losses_that_are_not_divided")
    def test_passes_that_are_left_out(self):
        self.check_counted("parts.py 4", "parts.py 4 --odd", (4, 2))

    @long("passes_test of diff_test: 'steps of two optimizers'")
    def test_a_step_of_another_optimizer(self):
        code, report, text = self.diff("turns.py 1", "turns.py 2")
        self.assertEqual((code, report["root"]["step"], report["root"]["phase"]), (1, 1, "optimizer"), text)
        self.assertRegex(report["cause"]["text"],
                         r"^the step updates other parameters: \S*weight and 1 more in the baseline, \S*weight and 1 more in")


if __name__ == "__main__":
    unittest.main()
