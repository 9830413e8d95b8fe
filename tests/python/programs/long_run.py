"""Trains a small model on batches that differ in length. usage: long_run.py STEPS [FAULT]

FAULT: the step in which a result is another one, by nothing that is a setting of a module."""
import sys

import torch



class Act(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh" if step == fault else "none")


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), Act(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
fault = int(sys.argv[2]) if len(sys.argv) > 2 else -1
for step in range(int(sys.argv[1])):
    loss = (model(torch.randn(8 + step * 5 % 64, 8)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
