"""Correct and faulty uses of memory by ops, one case per run.

mutated: an op changes its input without PyTorch's knowledge. tuned: a Triton kernel that works in place is tuned on the
program's data. copy, same: an op that works in place takes a tensor and a copy of it, or the tensor twice. unwritten: an op
leaves half of its result unwritten. freed: a tensor is read whose memory was freed.
"""
from aliasing import unowned
from common import arguments, deterministic, finish, need_triton

torch = deterministic()
CASES = ("mutated", "tuned", "copy", "same", "unwritten", "freed")


def function(name, forward):
    return type(name, (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(lambda ctx, *gradients: gradients[0])})


def mutates(ctx, x):
    y = x * 2
    unowned(x).add_(1)
    return y


def adds(ctx, x, y):
    unowned(y).add_(1)
    return x + y


def half(ctx, x):
    y = torch.empty_like(x)
    y[: len(x) // 2] = x[: len(x) // 2]
    return y


def tuned():
    """Each configuration adds one: the first call adds as many as there were trials."""
    from triton_op import add_one

    def forward(ctx, x):
        add_one(x)
        ctx.mark_dirty(x)
        return x
    return function("Tuned", forward)


def main():
    args = arguments(__doc__, case=CASES)
    if args.case == "tuned":
        need_triton(args.device)
    ops = {"mutated": function("Mutates", mutates), "copy": function("Adds", adds), "same": function("Adds", adds),
           "unwritten": function("Half", half)}
    op = tuned() if args.case == "tuned" else ops.get(args.case)
    layer = torch.nn.ReLU()
    nan = None
    for _ in range(args.steps):
        x = layer(torch.ones(4096, device=args.device))
        if args.case == "freed":
            result = unowned(x)
            del x
        elif args.case in ("copy", "same"):
            result = op.apply(x, x.clone() if args.case == "copy" else x)
        else:
            result = op.apply(x)
        nan = float(layer(result).isnan().float().mean())
    finish(args.out, nan=nan)


if __name__ == "__main__":
    main()
