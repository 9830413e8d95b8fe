#!/usr/bin/env python3
"""How far do values move apart that differ by rounding alone? Measured pairs behind the constants of tools/diff/compare.h.

usage: rounding_pairs.py [FOLDER]     runs all pairs under the preload (minutes), prints tables in Markdown; traces that
                                      lie in FOLDER already are taken as they are
       rounding_pairs.py train MODEL DTYPE VARIANT[+FAULT]
ROUNDING_STEPS in the environment: how many steps are trained, 6 by default.

Every pair trains one model from the same seed on the same data, twice: plainly, and with what changes no more than the
order and the precision of sums. z is convtrace-diff's: the difference in units of its tolerance. The second table plants
faults beside such rounding: a verdict that never blames rounding is worth something only if it still blames them.
"""
import collections
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build" / "release"
MODELS, DTYPES = ("gpt", "conv"), ("f32", "bf16", "autocast")
VARIANTS = {
    "threads": "1 thread against 2",
    "blas": "oneDNN against MKL or ATen's own kernels",
    "simd": "AVX-512 or AVX2 against ATen's kernels for any CPU",
    "unfused": "fused attention, norm and GELU against their formulas",
    "split": "products cut into four along the summed dimension",
}
STEPS = int(os.environ.get("ROUNDING_STEPS", "6"))
# fault: what the root should say. Those with a number begin in that step.
FAULTS = {
    "eps": "step 0, forward, {norm}", "reduction": "step 0, loss", "lr": "step 0, optimizer", "lr2": "step 0, optimizer",
    "decay": "step 0, optimizer", "data3": "step 3, data", "eps3": "step 3, forward, {norm}", "scale3": "step 3, forward, {middle}",
    "drop3": "step 3, forward, {middle}", "bit3": "step 3, forward, {middle}", "smooth3": "step 3, loss",
    "clip3": "step 3, backward", "lr3": "step 3, optimizer",
}
PLACES = {"gpt": {"norm": "blocks.3.ln2", "middle": "blocks.3.fc1"}, "conv": {"norm": "norms.2", "middle": "convs.2"}}


def train(model_name, dtype_name, what):
    variant, _, fault = what.partition("+")
    if variant == "simd":
        os.environ["ATEN_CPU_CAPABILITY"] = "default"
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.manual_seed(11)
    torch.set_num_threads(2 if variant == "threads" else 1)
    torch.backends.mkldnn.enabled = variant != "blas"
    width, vocabulary, length = 128, 64, 48

    class Linear(nn.Linear):
        def forward(self, x):
            if variant != "split":
                return super().forward(x)
            pieces = zip(x.chunk(4, -1), self.weight.chunk(4, -1))
            total = sum(part @ weight.t() for part, weight in pieces)
            return total + self.bias.to(total.dtype)

    class Norm(nn.LayerNorm):
        def forward(self, x):
            if variant != "unfused":
                return super().forward(x)
            mean = x.mean(-1, keepdim=True)
            deviation = x - mean
            return deviation / (deviation.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias

    def gelu(x):
        return F.gelu(x) if variant != "unfused" else x * 0.5 * (1 + torch.erf(x * 0.5 ** 0.5))

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)

        def forward(self, x):
            batch = x.shape[0]
            q, k, v = self.qkv(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            if variant == "unfused":
                scores = q @ k.transpose(-2, -1) * (width // 4) ** -0.5
                mask = torch.ones(length, length, dtype=torch.bool).tril()
                y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
            else:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.attn, self.ln2 = Norm(width), Attention(), Norm(width)
            self.fc1, self.fc2 = Linear(width, 4 * width), Linear(4 * width, width)

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.fc2(gelu(self.fc1(self.ln2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(6)))
            self.head = Linear(width, vocabulary)

        def forward(self, x):
            return self.head(self.blocks(self.embed(x)))

    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = (3, 32, 64, 64, 128)
            self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in zip(sizes, sizes[1:]))
            self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
            self.head = Linear(sizes[-1], 10)

        def forward(self, x):
            for conv, norm in zip(self.convs, self.norms):
                x = gelu(norm(conv(x)))
            return self.head(x.mean((2, 3)))

    model = Gpt() if model_name == "gpt" else Conv()
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=dtype_name == "autocast")
    if dtype_name == "bf16":
        model = model.bfloat16()
    norm, middle = (model.get_submodule(PLACES[model_name][each]) for each in ("norm", "middle"))
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": vectors, "weight_decay": 0.1 if fault == "decay" else 0.0}]
    optimizer = torch.optim.AdamW(groups, lr={"lr": 1.1e-3, "lr2": 2e-3}.get(fault, 1e-3))
    for step in range(STEPS):
        if fault == "eps" or (fault, step) == ("eps3", 3):
            norm.eps = 1e-2
        if (fault, step) == ("scale3", 3):
            middle.register_forward_hook(lambda module, given, made: made * 1.01)
        if (fault, step) == ("drop3", 3):
            middle.register_forward_hook(lambda module, given, made: F.dropout(made, 0.02))
        if (fault, step) == ("bit3", 3):  # in the exponent of one weight
            narrow = middle.weight.dtype == torch.bfloat16
            bits = middle.weight.data.view(torch.int16 if narrow else torch.int32).view(-1)
            bits[1000] ^= 1 << (10 if narrow else 26)
        if (fault, step) == ("lr3", 3):
            for group in optimizer.param_groups:
                group["lr"] = 1.1e-3
        if model_name == "gpt":
            x, y = torch.randint(vocabulary, (8, length)), torch.randint(vocabulary, (8 * length,))
        else:
            x, y = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
            x = x.bfloat16() if dtype_name == "bf16" else x
        if (fault, step) == ("data3", 3):
            x = x.roll(1, 0)
        with autocast:
            out = model(x)
        loss = F.cross_entropy(out.float().flatten(0, -2), y, reduction="sum" if fault == "reduction" else "mean",
                               label_smoothing=0.01 if (fault, step) == ("smooth3", 3) else 0.0)
        optimizer.zero_grad()
        loss.backward()
        if (fault, step) == ("clip3", 3):
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def traced(folder, model, dtype, variant):
    path = folder / f"{model}-{dtype}-{variant}.ctrace"
    if path.exists():
        return path
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
    env = plain | {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so"), "CONVTRACE_OUTPUT": str(path), "CONVTRACE_OVERWRITE": "1"}
    subprocess.run([sys.executable, __file__, "train", model, dtype, variant], env=env, check=True)
    return path


def rows_of(base, cand, *options):
    """What convtrace-diff says in one word, and of each value with statistics: its CSV row."""
    with tempfile.NamedTemporaryFile() as rows:
        words = [BUILD / "bin" / "convtrace-diff", base, cand, "--csv", rows.name, *options]
        code = subprocess.run([str(word) for word in words], stdout=subprocess.DEVNULL).returncode
        with open(rows.name, newline="") as file:
            return ("same", "diverged", "", "not comparable")[code], [row for row in csv.DictReader(file) if row["base_mean"]]


def z_of(row):
    return float(row["z"]) if row["z"] else 0.0


def largest(rows):
    """The largest z, and what it is in."""
    worst = max(rows, key=z_of, default=None)
    return "–" if worst is None or z_of(worst) == 0 else f"{z_of(worst):.2g} {worst['field']}"


def above(rows, limit):
    return f"{100 * sum(z_of(row) > limit for row in rows) / max(len(rows), 1):.2g} %"


def plain_runs(folder):
    """(model, dtype, its trace) of each."""
    for model in MODELS:
        for dtype in DTYPES:
            yield model, dtype, traced(folder, model, dtype, "plain")


def main(folder):
    print("| model | dtype | what differs | step 0: forward | backward | optimizer | all steps | z > 1 | z > 8 | verdict |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model, dtype, base in plain_runs(folder):
        for variant, what in VARIANTS.items():
            verdict, rows = rows_of(base, traced(folder, model, dtype, variant))
            first = collections.defaultdict(list)
            for row in rows:
                if row["step"] == "0":
                    first[row["phase"]].append(row)
            cells = [largest(first["forward"] + first["loss"]), largest(first["backward"]), largest(first["optimizer"]),
                     largest(rows), above(rows, 1), above(rows, 8), verdict]
            print(f"| {model} | {dtype} | {what} | {' | '.join(cells)} |", flush=True)
    faults(folder)


def faults(folder):
    print("\n| model | dtype | fault | alone | beside split products |")
    print("|---|---|---|---|---|")
    for model, dtype, base in plain_runs(folder):
        for fault, place in FAULTS.items():
            place = place.format(**PLACES[model])
            cells = [found(base, traced(folder, model, dtype, f"{variant}+{fault}"), place) for variant in ("plain", "split")]
            print(f"| {model} | {dtype} | {fault} | {' | '.join(cells)} |", flush=True)


def found(base, cand, place):
    """Whether the diff names the place, or what else it says."""
    with tempfile.NamedTemporaryFile() as report:
        words = [BUILD / "bin" / "convtrace-diff", base, cand, "--json", report.name]
        subprocess.run([str(word) for word in words], stdout=subprocess.DEVNULL)
        root = json.load(report)["root"]
    if root is None:
        return "not seen"
    named = f"step {root['step']}, {root['phase']}, {root['scope']}"
    return "named" if named.startswith(place) else named


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(*sys.argv[2:])
    elif len(sys.argv) > 1:
        main(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(pathlib.Path(scratch))
