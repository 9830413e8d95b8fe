"""A training that makes a burst of steps for each line on stdin and answers with its seconds; usage: DEVICE SIZE."""
import sys
import time

from common import deterministic, need_gpu
from models import Scene, captured, cnn_model, gpt_model, token_batch

BURST = 5  # steps
# name: layers, width, sequences, their length
GPTS = {"tiny": (2, 64, 2, 32), "gpt": (8, 1024, 8, 512), "launch_bound": (12, 128, 1, 64)}


def scene_of(torch, device, size):
    """@param size  of GPTS, or resnet; with "+bf16" under autocast, with "+graph" the step as a CUDA graph, in this order."""
    size, *ways = size.split("+")
    if size == "resnet":
        x, y = torch.randn(64, 3, 128, 128, device=device), torch.randint(10, (64,), device=device)
        scene = Scene(torch, device, cnn_model(torch, stages=4, width=64, pixels=128),
                      lambda model: torch.nn.functional.cross_entropy(model(x), y))
    else:
        layers, width, count, length = GPTS[size]
        scene = Scene(torch, device, gpt_model(torch, width, layers), token_batch(torch, device, 256, count, length))
    if "bf16" in ways:
        batch = scene.batch

        def cast(model):
            with torch.autocast(device, torch.bfloat16, cache_enabled="graph" not in ways):  # a graph must cast each time
                return batch(model)

        scene.batch = cast
    if "graph" in ways:
        need_gpu(device)
        captured(torch, scene)
    return scene


def main():
    device, size = sys.argv[1:]
    torch = deterministic(strict=False)  # as fast as programs that do not ask for equal bits
    scene = scene_of(torch, device, size)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in sys.stdin:
        wait()
        start = time.perf_counter()
        for _ in range(BURST):
            scene.step()
        wait()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
