"""Host time of a small operation: the least that a launch by PyTorch costs."""
import time

from common import arguments, deterministic, finish

BURST, BURSTS = 400, 30


def main():
    args = arguments(__doc__)
    torch = deterministic(strict=False)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    x = torch.zeros(256, device=args.device)
    times = []
    for _ in range(BURSTS):
        wait()
        start = time.perf_counter_ns()
        for _ in range(BURST):
            x.add_(1)
        times.append((time.perf_counter_ns() - start) / BURST)
    finish(args.out, ns=sorted(times)[BURSTS // 2])


if __name__ == "__main__":
    main()
