"""Trains the transformer of train.py in bf16, and keeps a digest of each value instead of the value.

usage: digests.py OUT STEPS

OUT gets, as JSON, a list of [step, phase, scope, call, slot, digest] for every tensor of bf16 among module
outputs, their gradients, parameters, their gradients and what the optimizer keeps. The digest is BLAKE2b
of the bytes in logical order.
"""
import hashlib
import json
import sys

import torch
import train
from torch.optim.optimizer import register_optimizer_step_post_hook


class Bf16(train.Transformer):
    def __init__(self):
        super().__init__()
        self.to(torch.bfloat16)


class Digests(train.Keeper):
    def __init__(self, model):
        super().__init__(model)
        register_optimizer_step_post_hook(self.optimizer_state)

    def keep(self, phase, scope, call, slot, tensor):
        if tensor.dtype != torch.bfloat16:
            return
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        self.kept.append((self.step, phase, scope, call, slot, digest))

    def optimizer_state(self, optimizer, *_):
        for scope, short, parameter in self.owners.values():
            for name, tensor in optimizer.state[parameter].items():
                self.keep("optimizer", scope, 0, "state:%s.%s" % (short, name), tensor)


train.Keeper, train.STEPS = Digests, int(sys.argv[2])
kept = train.train(Bf16)[:-1]
with open(sys.argv[1], "w") as out:
    json.dump(kept, out)
