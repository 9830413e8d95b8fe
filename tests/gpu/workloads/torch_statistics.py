"""What statistics cost with PyTorch's own operations: time of one 256 MiB float32 tensor, in milliseconds."""
from common import arguments, deterministic, finish, need_gpu

COUNT = 64 << 20


def minimal(torch, x):
    """The fewest operations that give count of NaN and Inf, extrema, mean, std, l2."""
    finite = torch.isfinite(x)
    low, high = torch.aminmax(x)
    std, mean = torch.std_mean(x, unbiased=False)
    return torch.isnan(x).sum(), finite.sum(), low, high, mean, std, torch.linalg.vector_norm(x), (x == 0).sum()


def subscriber(torch, x):
    """The operations that ONNX Runtime's StatisticsSubscriber makes of a tensor, with its waits."""
    x = x.detach().clone()
    flat = x.view(-1)
    counts = [torch.isnan(flat).sum(), torch.isinf(flat).sum(), (flat > 0).sum(), (flat < 0).sum(), (flat == 0).sum()]
    total = flat.sum()
    extrema = flat.min(), flat.max()
    mean = total / flat.numel()
    square = torch.square(flat - mean).sum()
    return [float(value) for value in (*counts, *extrema, mean, torch.sqrt(square / flat.numel()))], flat[:128].cpu()


def milliseconds(torch, function, x):
    def one():
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function(torch, x)
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    for _ in range(3):
        one()
    return sorted(one() for _ in range(11))[5]


def main():
    args = arguments(__doc__)
    need_gpu(args.device)
    torch = deterministic(strict=False)
    x = torch.randn(COUNT, device=args.device)
    finish(args.out, bytes=4 * COUNT, torch_ms=milliseconds(torch, minimal, x), subscriber_ms=milliseconds(torch, subscriber, x))


if __name__ == "__main__":
    main()
