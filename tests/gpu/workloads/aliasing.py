"""Programs with one planted bug of the kind of ONNX Runtime's PR 17685, and correct programs that look like it.

Each trains a few steps with a custom op whose result lies over memory that it does not own (FAULTS), or over memory
that it may share (CORRECT). A fault names the op that convtrace must name.
"""
import ctypes

from common import arguments, deterministic, finish, training_script

torch = deterministic()
train = training_script()


class Borrowed:
    """Memory of a tensor, offered to torch without keeping the tensor alive: a from_blob without a deleter."""

    def __init__(self, tensor, offset=0):
        self.__cuda_array_interface__ = {
            "shape": (tensor.numel() - offset,), "typestr": "<f4", "version": 3,
            "data": (tensor.data_ptr() + 4 * offset, False)}


def unowned(tensor, offset=0):
    """A tensor over the memory of `tensor`, from its element `offset` on, that does not own it."""
    if tensor.is_cuda:
        return torch.as_tensor(Borrowed(tensor, offset), device=tensor.device)
    size = 4 * (tensor.numel() - offset)
    memory = (ctypes.c_char * size).from_address(tensor.data_ptr() + 4 * offset)
    return torch.frombuffer(memory, dtype=torch.float32)


class Returns(torch.autograd.Function):
    """The bug's own shape: forward gives out its input's memory."""

    @staticmethod
    def forward(ctx, x):
        return unowned(x).view(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class ReturnsBackward(torch.autograd.Function):
    """The same for a gradient, on its way back."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return unowned(gradient).view(gradient.shape)


@torch.library.custom_op("gpu_check::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    """Its schema declares no alias."""
    return unowned(x).view(x.shape)


hidden.register_autograd(lambda ctx, gradient: gradient.clone())


class Inside(torch.autograd.Function):
    """The alias begins in the middle of the input."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return unowned(x, x.numel() // 2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.new_ones(ctx.shape)


class Many(torch.autograd.Function):
    """Nine results, of which the last lies over the input."""

    @staticmethod
    def forward(ctx, x):
        return tuple(x * i for i in range(1, 9)) + (unowned(x).view(x.shape),)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0].clone()


class Late(torch.autograd.Function):
    """Correct until its 51st call, which is that of step 50."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        Late.calls += 1
        return unowned(x).view(x.shape) if Late.calls > 50 else x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Exchange(torch.autograd.Function):
    """Correct: shares memory by DLPack, which keeps its owner alive."""

    @staticmethod
    def forward(ctx, x):
        return torch.from_dlpack(x.detach().clone())

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


def first(result):
    return result[-1] if isinstance(result, tuple) else result


FAULTS = {
    "forward": (Returns, "Returns"),
    "backward": (ReturnsBackward, "ReturnsBackwardBackward"),
    "schema": (None, "gpu_check::hidden"),
    "offset": (Inside, "Inside"),
    "ninth_output": (Many, "Many"),
    "late": (Late, "Late"),
}
CORRECT = {"in_place": train.Square, "passing": train.Passing, "dlpack": Exchange}


def main():
    args = arguments(__doc__, case=[*FAULTS, *CORRECT])
    nn = torch.nn
    op = CORRECT.get(args.case) or FAULTS[args.case][0]
    apply = op.apply if op else torch.ops.gpu_check.hidden

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 64), nn.Linear(1024 if args.case == "offset" else 2048, 1)

        def forward(self, x):
            h = first(apply(self.first(x) * 1))  # what goes in is freed on return
            noise = torch.randn_like(x)  # takes a freed block
            return self.last(h.reshape(8, -1)).mean() + 0 * noise.sum()

    model = Model().to(args.device)
    x = torch.randn(256, 64, device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(52 if args.case == "late" else 8):
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    finish(args.out, loss=float(loss.detach()))


if __name__ == "__main__":
    main()
