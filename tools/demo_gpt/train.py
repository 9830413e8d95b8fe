#!/usr/bin/env python3
"""Trains a small character-level GPT whose MLP uses a custom C++ op. Prints the loss of every step.

An ordinary training script: it knows nothing of convtrace. Same arguments, same machine: same losses, to the last bit.
"""

import argparse
import os
import pathlib
import shutil

import bias_relu
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.cpp_extension import load

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS gives the same bits only with a fixed workspace
HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY = 128  # ASCII


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_qkv = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.c_qkv(x).view(batch, time, 3, self.heads, width // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, width))


class GatedMlp(nn.Module):
    """h = relu(c_fc(x) + bias) by the custom op; a second branch gates its normed value."""

    def __init__(self, width, hidden):
        super().__init__()
        self.c_fc = nn.Linear(width, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.c_gate = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.c_proj = nn.Linear(hidden, width)

    def forward(self, x):
        h = torch.ops.demo_ops.bias_relu(self.c_fc(x), self.bias)
        gate = self.c_gate(x)
        return self.c_proj(self.norm(h) * torch.sigmoid(gate))


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = GatedMlp(width, hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, hidden, time):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(time, width)
        self.transformer = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.transformer:
            x = block(x)
        return self.head(self.ln_f(x))


def has_compiler():
    return all(shutil.which(program) for program in (os.environ.get("CXX", "c++"), "ninja"))


def load_op(variant, language):
    """Registers the op as torch.ops.demo_ops.bias_relu. PyTorch compiles it on first use, into TORCH_EXTENSIONS_DIR."""
    if language == "python":
        bias_relu.define(reuses_input=variant == "reuse")
        return
    load(
        name=f"demo_ops_{variant}",
        sources=[str(HERE / "bias_relu.cpp"), str(HERE / "caching_allocator.cpp")],
        extra_cflags=["-O1"] + (["-DDEMO_REUSE_INPUT"] if variant == "reuse" else []),
        is_python_module=False,
    )


def batches(text, count, time, device):
    """Endless random windows of the text: (inputs, targets), one character apart."""
    while True:
        starts = torch.randint(len(text) - time, (count,)).tolist()
        window = torch.stack([text[start : start + time + 1] for start in starts]).to(device)
        yield window[:, :-1], window[:, 1:]


def training(op, language, device):
    """Yields the loss of one training step after another, for ever."""
    load_op(op, language)
    torch.manual_seed(17)
    torch.set_num_threads(2)  # the order of a sum depends on it
    torch.ones(1).sqrt()  # MKL chooses its code in the first call: two threads that race there can get another's bits
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False

    text = torch.tensor(list((HERE / "shakespeare.txt").read_bytes()))
    time = 64
    model = Gpt(layers=3, width=384, heads=6, hidden=768, time=time).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for inputs, targets in batches(text, 8, time, device):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", choices=("correct", "reuse"), default="correct", help="version of the custom op")
    parser.add_argument("--language", choices=("c++", "python"), default="c++" if has_compiler() else "python",
                        help="of the op: Python, for the CPU alone, where there is no compiler")
    parser.add_argument("--steps", type=int, default=30, help="0 only compiles the op")
    parser.add_argument("--device", help="default: cuda where there is one")
    args = parser.parse_args()
    if args.steps == 0:
        load_op(args.op, args.language)
    device = args.device or ("cuda" if args.language == "c++" and torch.cuda.is_available() else "cpu")
    for step, loss in zip(range(args.steps), training(args.op, args.language, device)):
        print(f"step {step:3d}  loss {loss:.9g}", flush=True)  # nine digits tell any two float32 values apart


if __name__ == "__main__":
    main()
