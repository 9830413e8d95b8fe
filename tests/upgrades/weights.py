"""Weights that both sides begin with: the first that comes saves its own, the second takes them."""
import pathlib
import sys

import torch


def share(model):
    path = pathlib.Path(sys.argv[1])
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        torch.save(model.state_dict(), path)
    torch.manual_seed(1)
