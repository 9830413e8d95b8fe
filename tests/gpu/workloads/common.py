"""Common parts of the workloads: arguments, settings under which PyTorch repeats its bits, a digest of results.

A workload is an ordinary script without knowledge of convtrace. It writes one JSON object to --out. Exit code 77: it
cannot run here, and the last line of stderr has the reason.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import sys
import sysconfig

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


def need_triton(device):
    """Triton compiles with the C compiler and the Python headers at hand."""
    need_gpu(device)
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        not_here("Triton needs a C compiler")
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        not_here("Triton needs Python.h")
    return need("triton")


def deterministic(strict=True):
    """PyTorch with the same bits in every run. @return torch

    strict: an op without such an algorithm raises. Otherwise it warns, and attention takes its fast, other one.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # chooses kernels without timing them
    torch = need("torch")
    torch.manual_seed(7)
    torch.set_num_threads(1)  # with more, how MKL divides work depends on how busy the machine is, and bits on that
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    return torch


def training_script():
    """The module `train` of the observer's tests, whose programs are in the folder `observed` of an installed tree."""
    here = pathlib.Path(__file__).resolve()
    sys.path += [str(here.parents[2] / "python" / "programs"), str(here.parents[1] / "observed")]
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
