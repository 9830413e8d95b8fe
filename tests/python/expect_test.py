"""Contracts of real changes of a program: `convtrace expect` over runs of an edited file."""
import json
import os
import pathlib
import subprocess
import unittest

from preload_test import BUILD, ProgramTest

CONVTRACE = os.path.join(BUILD, "bin", "convtrace")

MODEL = '''
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block() for _ in range(2)]), nn.Linear(8, 3)

    def penalty(self):
        return 1e-2 * self.head.weight.pow(2).sum()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
'''
TRAIN = '''
import sys
sys.path.insert(0, sys.argv[1])
import model
import torch

torch.manual_seed(0)
net = model.Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(1)
for _ in range(4):
    x, y = torch.randn(16, 8, generator=data), torch.randint(3, (16,), generator=data)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
'''
REFACTORING = ("return x + self.down(torch.relu(self.up(x)))", "hidden = self.up(x).relu()\n        return self.down(hidden) + x")
NEUTRAL = '[[unchanged]]\nto = "bit"\n[[changed]]\ncode = "model.py"\n[[runs]]\ncode = "model.py: class Block"\n'
NEW_LOSS = ('[[unchanged]]\nphase = "forward"\nsteps = "0"\nto = "bit"\n[[changed]]\nphase = "loss"\n'
            '[[changed]]\nscope = "head"\nslot = "param:weight"\n')


class Contracts(ProgramTest):
    shared = True

    def leg(self, name, model=(), train=()):
        """@return the trace of a run of both files with the edits (old text, new text)."""
        folder = pathlib.Path(self.folder) / name
        folder.mkdir()
        for file, text, edits in ("model.py", MODEL, model), ("train.py", TRAIN, train):
            for old, new in [edits] if edits else ():
                self.assertIn(old, text)
                text = text.replace(old, new)
            (folder / file).write_text(text)
        path = str(folder / "run.ctrace")
        done = self.run_program(str(folder / "train.py"), str(folder), CONVTRACE_OUTPUT=path)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return path

    def judge(self, contract, base, cand):
        """@return (exit code, [(clause, verdict)])"""
        file = os.path.join(self.folder, "expect.toml")
        pathlib.Path(file).write_text(contract)
        done = subprocess.run([CONVTRACE, "expect", file, base, cand, "--json", "-"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        self.assertNotEqual(done.returncode, 2, done.stderr)
        return done.returncode, [(one["clause"], one["verdict"]) for one in json.loads(done.stdout)["clauses"]]

    def test_changes_of_a_program(self):
        base = self.leg("base")
        neutral = self.leg("neutral", model=REFACTORING)
        self.assertEqual(self.judge(NEUTRAL, base, neutral)[0], 0)
        # It reaches further than it claims.
        further = self.leg("further", model=("return self.head(x)", "return self.head(x * 1.01)"))
        code, clauses = self.judge(NEUTRAL, base, further)
        self.assertEqual((code, clauses[0]), (1, ("unchanged", "broken")))
        # The edited class is never called: the old one still is.
        unused = self.leg("unused", model=("class Net(", "class Unused(nn.Module):\n    pass\n\n\nclass Net("))
        self.assertEqual(self.judge('[[runs]]\ncode = "model.py: class Unused"\n', base, unused),
                         (1, [("runs", "broken"), ("different", "kept")]))
        # One leg ran the other's code.
        code, clauses = self.judge(NEUTRAL, base, self.leg("same"))
        self.assertEqual((code, clauses), (1, [("unchanged", "kept"), ("changed", "broken"), ("runs", "kept"),
                                               ("different", "broken")]))
        # The new loss is in, and it is not: its function was written and never called.
        called = self.leg("called", train=("cross_entropy(net(x), y)", "cross_entropy(net(x), y).add(net.penalty())"))
        self.assertEqual(self.judge(NEW_LOSS, base, called)[0], 0)
        code, clauses = self.judge(NEW_LOSS, base, neutral)
        self.assertEqual((code, clauses[:3]), (1, [("unchanged", "kept"), ("changed", "broken"), ("changed", "broken")]))
        for cand in neutral, further, called:
            proposed = subprocess.run([CONVTRACE, "expect", "--init", base, cand], stdout=subprocess.PIPE,
                                      universal_newlines=True, check=True).stdout
            self.assertEqual(self.judge(proposed, base, cand)[0], 0, proposed)
        self.assertEqual(self.judge(proposed, base, neutral)[0], 1, proposed)


if __name__ == "__main__":
    unittest.main()
