"""Collects versions and switches that change numerics, as they are when the program first computes."""
import os
import sys

from ..base import FOLDER, contents, signals
from ..calls import ops
from . import code_facts

# Read by attribute path below torch; a call where it ends in "()". Reading must neither warn nor
# start CUDA, and must not pick one of torch's two TF32 interfaces for the program.
_SWITCHES = {
    "switch.deterministic_algorithms": "are_deterministic_algorithms_enabled()",
    "switch.fill_uninitialized_memory": "utils.deterministic.fill_uninitialized_memory",
    "switch.default_dtype": "get_default_dtype()",
    "switch.num_threads": "get_num_threads()",
    "switch.cudnn_enabled": "backends.cudnn.enabled",
    "switch.cudnn_benchmark": "backends.cudnn.benchmark",
    "switch.cudnn_deterministic": "backends.cudnn.deterministic",
    "switch.cudnn_fp32_precision": "backends.cudnn.fp32_precision",
    # Convolutions and recurrences do not take cuDNN's own where they have one: TF32 by default.
    "switch.cudnn_conv_fp32_precision": "backends.cudnn.conv.fp32_precision",
    "switch.cudnn_rnn_fp32_precision": "backends.cudnn.rnn.fp32_precision",
    "switch.matmul_fp32_precision": "backends.cuda.matmul.fp32_precision",
    "switch.matmul_fp16_reduced": (
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction"),
    "switch.matmul_bf16_reduced": (
        "backends.cuda.matmul.allow_bf16_reduced_precision_reduction"),
    "switch.mkldnn_enabled": "backends.mkldnn.enabled",
    "switch.torch_seed": "initial_seed()",
}
# Recorded only if they do not have their default.
_RARE_SWITCHES = {
    "switch.deterministic_warn_only": ("is_deterministic_algorithms_warn_only_enabled()", "False"),
    "switch.mkldnn_matmul_fp32_precision": ("backends.mkldnn.matmul.fp32_precision", "none"),
    "switch.mkldnn_conv_fp32_precision": ("backends.mkldnn.conv.fp32_precision", "none"),
    "switch.mkldnn_rnn_fp32_precision": ("backends.mkldnn.rnn.fp32_precision", "none"),
}
# torch before fp32_precision (2.9).
_OLD_SWITCHES = {
    "switch.cudnn_allow_tf32": "backends.cudnn.allow_tf32",
    "switch.matmul_precision": "get_float32_matmul_precision()",
}


def collect(torch):
    """Yields (name, value) as texts."""
    yield "version.python", sys.version.split()[0]
    yield "run.executable", sys.executable or ""
    yield "run.pythonpath", _python_path()
    yield "version.torch", str(torch.__version__)
    yield "version.torch_cuda", str(torch.version.cuda)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield "version.numpy", str(contents.attribute(numpy, "__version__") or "unknown")
    switches = dict(_SWITCHES)
    if _read(torch, _SWITCHES["switch.matmul_fp32_precision"]) is None:
        switches.update(_OLD_SWITCHES)
    for name, path in switches.items():
        value = _read(torch, path)
        if value is not None:
            yield name, value
    for name, (path, usual) in _RARE_SWITCHES.items():
        value = _read(torch, path)
        if value not in (None, usual):
            yield name, value
    libraries = _custom_op_libraries(torch)
    if libraries:
        yield "custom_op_libraries", " ".join(libraries)
    yield from _distributed(torch)
    yield from code()


def _python_path():
    """@return PYTHONPATH without the folder that the preload library has put there."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if entry != FOLDER)


def code():
    """Yields the facts of packages and files that are imported now. Called again at the end, for later imports."""
    for collect_some in (code_facts.packages, code_facts.files):
        try:
            yield from collect_some()
        except Exception as error:  # a file that is gone, a module that is none
            signals.let_pass(error)


def _custom_op_libraries(torch):
    """@return the namespaces of torch.library ops that are not torch's own. As soon as there is one, the engine takes the
    stacks of allocations, so that the first finding can already show them."""
    try:
        names = torch._C._dispatch_get_all_op_names()
    except Exception as error:
        signals.let_pass(error)
        return []  # this torch does not tell: stacks begin with the first call of such an op
    return sorted({name.partition("::")[0] for name in names} - ops.TORCH_NAMESPACES)


def _read(torch, path):
    value = torch
    try:
        for part in path.replace("()", "").split("."):
            value = getattr(value, part)
        return str(value() if path.endswith("()") else value)
    except Exception as error:
        signals.let_pass(error)
        return None  # this torch does not have it


def _distributed(torch):
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        yield "distributed.rank", str(distributed.get_rank())
        yield "distributed.world_size", str(distributed.get_world_size())
        yield "distributed.backend", str(distributed.get_backend())
