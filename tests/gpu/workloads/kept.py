"""Small models of all kinds, with what torch itself says in float64 about every tensor that a trace must have."""
from common import arguments, deterministic, finish, training_script


def values(torch, tensor):
    x = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    x = x.to(torch.float64).reshape(-1)
    zero, negative = x == 0, torch.signbit(x)
    counts = {"count": x.numel(), "nan": x.isnan(), "pos_inf": x == float("inf"), "neg_inf": x == float("-inf"),
              "pos_zero": zero & ~negative, "neg_zero": zero & negative, "positive": x > 0, "negative": x < 0}
    x = x[torch.isfinite(x)]
    return {**{name: count if name == "count" else int(count.sum()) for name, count in counts.items()}, "finite": x.numel(),
            "min": x.min().item(), "max": x.max().item(), "amax": x.abs().max().item(), "mean": x.mean().item(),
            "std": x.std(unbiased=False).item(), "sum": x.sum().item(), "l1": x.abs().sum().item(), "l2": x.norm().item()}


def main():
    torch = deterministic(strict=False)
    train = training_script()
    args = arguments(__doc__, model=sorted(train.MODELS))
    torch.set_default_device(args.device)
    kept = train.train(train.MODELS[args.model])
    finish(args.out, kept=[{"place": place, "values": values(torch, tensor)}
                           for *place, tensor in kept if place[0] is not None])


if __name__ == "__main__":
    main()
