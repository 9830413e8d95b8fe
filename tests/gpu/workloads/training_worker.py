"""A training that makes a burst of steps for each line on stdin and answers with its seconds; usage: DEVICE SIZE."""
import contextlib
import os
import sys
import time

from common import deterministic
from models import Scene, gpt_model, token_batch

# name: layers, width, sequences, their length, steps a burst
SIZES = {"tiny": (2, 64, 2, 32, 3), "gpt": (8, 1024, 8, 512, 5), "launch_bound": (12, 128, 1, 64, 5)}


def around(torch, tool):
    """The other tool that this step is measured with; nothing by default."""
    if tool == "profiler":
        return torch.profiler.profile()
    if tool == "debug_mode":
        from torch.utils._debug_mode import DebugMode

        mode = contextlib.ExitStack()
        mode.enter_context(DebugMode())
        mode.enter_context(DebugMode.log_tensor_hashes())
        return mode
    return contextlib.nullcontext()


def main():
    device, (layers, width, count, length, burst) = sys.argv[1], SIZES[sys.argv[2]]
    torch = deterministic()
    scene = Scene(torch, device, gpt_model(torch, width, layers), token_batch(torch, device, 256, count, length))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in sys.stdin:
        wait()
        start = time.perf_counter()
        with around(torch, os.environ.get("WORKER_TOOL")):
            for _ in range(burst):
                scene.step()
            wait()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
