"""Small models of all kinds, with what torch itself says in float64 about every tensor that a trace must have."""
from common import arguments, deterministic, finish, training_script


def values(torch, tensor):
    x = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    x = x.to(torch.float64)
    return {"min": x.min().item(), "max": x.max().item(), "amax": x.abs().max().item(), "mean": x.mean().item(),
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
