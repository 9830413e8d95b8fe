"""The list of checks, in parts that fit into the time of one loan of a machine."""
import collections

Check = collections.namedtuple("Check", "name part run alone")
CHECKS = []  # filled when the modules of checks/ are imported
# The most important parts come first: a part has little value while an earlier one fails.
PARTS = {
    1: "ways into a process: the injection, the launch functions, kernel handles and their parameters",
    2: "a training step of PyTorch with and without convtrace: bits, counts, operands, memory",
    3: "preparation of a context: its time, its memory, the first launches beside a busy device",
    4: "statistics against the CPU to the last bit, and against PyTorch in float64",
    5: "CUDA graphs",
    6: "cost of a launch and of a training step",
    7: "speed of the statistics kernel, and other tools on the same step",
    8: "other software: profiler, NCCL, Triton, Inductor, more models, CuPy, JAX",
    9: "memory: streams, expandable segments, copies under way, planted bugs of buffer reuse",
    10: "programs in trouble, and load",
    11: "compiled code: values of Inductor's and Triton's kernels by name, autotuning, graph trees",
}
LOGS = 0  # the part of --record, which writes what CUPTI calls


def check(name, part, alone=False):
    """Registers a function of a Bench that returns its numbers (a flat dict, or None), or raises Skip or Failure.

    alone: it measures time, or takes the whole GPU, so that nothing may run beside it.
    """
    def register(function):
        assert part in (LOGS, *PARTS) and all(name != one.name for one in CHECKS), name
        CHECKS.append(Check(name, part, function, alone))
        return function
    return register
