"""A step of attention's projections, as three layers or as one. Usage: fused.py q,k,v|qkv"""
import sys

import torch

torch.manual_seed(0)
weight = torch.randn(192, 64, dtype=torch.bfloat16)
names = sys.argv[1].split(",")
model = torch.nn.Module()
for name, part in zip(names, weight.chunk(len(names))):
    layer = torch.nn.Linear(64, len(part), bias=False, dtype=torch.bfloat16)
    layer.weight.data = part.clone()
    model.add_module(name, layer)
model.forward = lambda x: torch.cat([layer(x) for layer in model.children()], 1).float().square().mean()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 64, dtype=torch.bfloat16)).backward()
optimizer.step()
