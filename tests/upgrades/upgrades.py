#!/usr/bin/env python3
"""Real upgrades of real packages, each traced on both sides and compared: what does convtrace-diff say of a known cause?

usage: upgrades.py [NAME...]      all but those marked large; needs pip's registry, a built tree and a Python with PyTorch
       upgrades.py --list

Packages go into build/cases/packages, one folder a side, traces into build/cases/NAME; both are kept. Nothing else is
fetched: models have random weights of small configurations, data are drawn here. Prints a table in Markdown. What is known
of each upgrade, and what convtrace said, is in README.md.
"""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
CASES = BUILD / "cases"
TOOLS = BUILD / "release"
OLD_NUMPY = "numpy==1.26.4"
VISION = "torchvision==0.15.2"  # timm imports it; its operators are not needed, so that it fits any PyTorch


@dataclasses.dataclass(frozen=True)
class Side:
    packages: tuple             # with what they depend on
    bare: tuple = ()            # without: they would bring another PyTorch

    @property
    def folder(self):
        return CASES / "packages" / "+".join(self.packages + self.bare).replace("==", "-")


def trainer(version, accelerate, numpy=OLD_NUMPY):
    return Side((f"transformers=={version}", numpy, "psutil"), (f"accelerate=={accelerate}",))


def timm(version):
    return Side((OLD_NUMPY, "pillow", "pyyaml", "safetensors", "huggingface-hub==0.36.0", "requests"), (f"timm=={version}", VISION))


@dataclasses.dataclass(frozen=True)
class Upgrade:
    script: str
    base: Side
    candidate: Side
    expected: str
    large: bool = False


UPGRADES = {
    "rotary": Upgrade("rotary.py", Side(("transformers==4.38.1", OLD_NUMPY)), Side(("transformers==4.38.2", OLD_NUMPY)),
                      "step 0, forward, a rotary_emb"),
    "gemma": Upgrade("gemma.py", Side(("transformers==4.38.2", OLD_NUMPY)), Side(("transformers==4.39.3", OLD_NUMPY)),
                     "step 0, forward, model.layers.0.mlp.act_fn"),
    "accumulation": Upgrade("accumulation.py", trainer("4.45.2", "1.0.1"), trainer("4.46.3", "1.0.1"),
                            "step 0, forward, the model's output (its loss)"),
    "transformers5": Upgrade("transformers5.py", trainer("4.48.3", "1.15.0"), trainer("5.23.0", "1.15.0", "numpy==2.4.6"),
                             "identical; the mask of another type is told"),
    "timm": Upgrade("vision.py", timm("0.9.16"), timm("1.0.31"), "step 0, forward, blocks.0.norm1"),
    "torch": Upgrade("plain.py", Side(("torch==2.6.0", OLD_NUMPY)), Side(("torch==2.13.0", "numpy==2.4.6")), "rounding", large=True),
}


def install(side):
    if side.folder.exists():
        return
    unfinished = side.folder.with_name(side.folder.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    for options, packages in (((), side.packages), (("--no-deps",), side.bare)):
        if packages:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, "--target", unfinished, *packages], check=True)
    unfinished.rename(side.folder)


def traced(upgrade, side, folder, name):
    install(side)
    path = folder / f"{name}.ctrace"
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
    env = plain | {"PYTHONPATH": str(side.folder), "LD_PRELOAD": str(TOOLS / "lib" / "libconvtrace.so"), "CONVTRACE_OUTPUT": str(path),
                   "CONVTRACE_OVERWRITE": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, HERE / upgrade.script, folder / "weights.pt"], env=env, stdout=subprocess.DEVNULL, check=True)
    return path


def said(base, candidate, folder):
    words = [TOOLS / "bin" / "convtrace-diff", base, candidate, "--json", folder / "report.json"]
    with open(folder / "report.txt", "w") as text:
        subprocess.run([str(word) for word in words], stdout=text, stderr=subprocess.STDOUT)
    report = json.loads((folder / "report.json").read_text())
    root = report["root"] or report["first_bit_difference"]
    place = f": step {root['step']}, {root['phase']}, {root['scope'] or '(root)'}, {root['slot']}" if root else ""
    return f"{report.get('agreement') or report['verdict']}{place if report['root'] else place.replace(':', ', from', 1)}"


def main(names):
    if names == ["--list"]:
        names = []
        for name, upgrade in UPGRADES.items():
            print(f"{name}{' (large)' if upgrade.large else ''}: {upgrade.script}, {upgrade.expected}")
        return
    print("| upgrade | expected | said |\n|---|---|---|")
    for name in names or [name for name, upgrade in UPGRADES.items() if not upgrade.large]:
        upgrade, folder = UPGRADES[name], CASES / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.pt").unlink(missing_ok=True)
        traces = [traced(upgrade, side, folder, which) for which, side in (("base", upgrade.base), ("candidate", upgrade.candidate))]
        print(f"| {name} | {upgrade.expected} | {said(*traces, folder)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
