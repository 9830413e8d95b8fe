"""What the workloads share: arguments, settings under which PyTorch repeats its bits, a digest of results.

A workload is an ordinary script that knows nothing of convtrace. It writes one JSON object to --out. Exit code 77: it
cannot run here, and the last line of stderr says why.
"""
import argparse
import hashlib
import json
import os
import pathlib
import sys

NOT_HERE = 77


def arguments(description, **choices):
    """Parsed --device, --out, --steps, and one --NAME for each list of choices."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    for name, values in choices.items():
        parser.add_argument("--" + name, choices=values, required=True)
    return parser.parse_args()


def not_here(why):
    sys.stderr.write("%s\n" % why)
    sys.exit(NOT_HERE)


def need(module):
    """The module, or the end of this workload."""
    try:
        return __import__(module)
    except ImportError as error:
        not_here(str(error))


def need_gpu(device):
    if device != "cuda":
        not_here("needs a GPU")


def deterministic():
    """PyTorch with the same bits in every run. @return torch"""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch = need("torch")
    torch.manual_seed(7)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    return torch


def training_script():
    """The module `train` of the observer's tests, whose programs are beside these in an installed tree, too."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "programs"))
    import train

    return train


def digest(tensors):
    """SHA-256 over the bytes of tensors, in order."""
    import torch

    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return total.hexdigest()


def finish(out, **facts):
    with open(out, "w") as file:
        json.dump(facts, file)
