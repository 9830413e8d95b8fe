"""A training that makes a burst of steps for each line on stdin and answers with its seconds; usage: DEVICE SIZE."""
import contextlib
import os
import sys
import time

from common import deterministic
from models import Scene, cnn_model, gpt_model, token_batch

BURST = 5  # steps
# name: layers, width, sequences, their length
GPTS = {"tiny": (2, 64, 2, 32), "gpt": (8, 1024, 8, 512), "launch_bound": (12, 128, 1, 64)}


def scene_of(torch, device, size):
    if size == "resnet":
        x, y = torch.randn(64, 3, 128, 128, device=device), torch.randint(10, (64,), device=device)
        return Scene(torch, device, cnn_model(torch, stages=4, width=64, pixels=128),
                     lambda model: torch.nn.functional.cross_entropy(model(x), y))
    layers, width, count, length = GPTS[size]
    return Scene(torch, device, gpt_model(torch, width, layers), token_batch(torch, device, 256, count, length))


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
    device, size = sys.argv[1:]
    torch = deterministic(strict=False)  # as fast as programs that do not ask for equal bits
    scene = scene_of(torch, device, size)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in sys.stdin:
        wait()
        start = time.perf_counter()
        with around(torch, os.environ.get("WORKER_TOOL")):
            for _ in range(BURST):
                scene.step()
            wait()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
