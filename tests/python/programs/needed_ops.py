"""Ops that write memory that is still needed, or only look alike: tensors saved, taken or given by a call (needed_cases.py)."""
import torch
from needed_cases import Block, Exp, Gate, Weighted, case, main, raw, train
from torch import nn


class Square(torch.autograd.Function):
    """x * x; the backward writes its result over what it has saved, and PyTorch does not count it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        raw(x)[...] = 2 * raw(x) * raw(grad)
        return x.detach()


class Tenth(torch.autograd.Function):
    """x / 10; the backward works on the gradient that it is given. `way`: "counted" or "raw"."""

    @staticmethod
    def forward(ctx, x, way):
        ctx.way = way
        return x / 10

    @staticmethod
    def backward(ctx, grad):
        if ctx.way == "counted":
            grad /= 10
        else:
            raw(grad)[...] /= 10
        return grad, None


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight



@case
def wrong_saved_of_tanh():
    model = Block(Square.apply, before=torch.tanh)
    train(model, model.parameters())


@case
def wrong_saved_of_product():
    def product_first(h):
        model.product = h * h
        return h

    model = Block(Square.apply, lambda h, y: y + model.product, product_first)
    train(model, model.parameters())


@case
def wrong_saved_of_exp():
    model = Block(lambda h: Square.apply(Exp.apply(h)))
    train(model, model.parameters())


@case
def wrong_gradient_counted():
    model = Block(lambda h: Tenth.apply(h.tanh(), "counted"), lambda h, y: h + y)
    train(model, model.parameters())


@case
def wrong_gradient_raw():
    model = Block(lambda h: Tenth.apply(h.tanh(), "raw"), lambda h, y: y + h)
    train(model, model.parameters())


@case
def wrong_gradient_alone():
    """Nobody else reads that gradient, today."""
    model = Block(lambda h: Tenth.apply(h.tanh(), "counted"))
    train(model, model.parameters())


@case
def wrong_weight_written():
    """The backward leaves the weight scaled."""

    class Linear(Product):
        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            raw(weight).mul_(0.9)
            return grad @ weight.t(), x.t() @ grad

    weight = nn.Parameter(torch.randn(8, 8))
    model = Block(lambda h: Linear.apply(h, weight))
    train(model, [*model.parameters(), weight])


@case
def wrong_input_written():
    class Centre(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x -= x.mean(1, keepdim=True)
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * (grad - grad.mean(1, keepdim=True))

    model = Block(Centre.apply, lambda h, y: h + y)
    train(model, model.parameters())


def parts_joined(held):
    """@return a model in which a Tenth gets a part of a gradient as its own. `held`: another branch gets it, too."""
    def around(h, y):
        return torch.cat([y + h, torch.ones_like(h)] if held else [y, h.tanh()], -1)

    model = Block(lambda h: Tenth.apply(h.exp(), "raw"), around)
    model.last = nn.Linear(16, 4)
    return model


@case
def wrong_part_of_a_gradient():
    model = parts_joined(held=True)
    train(model, model.parameters())


@case
def wrong_part_of_a_gradient_alone():
    model = parts_joined(held=False)
    train(model, model.parameters())


@case
def wrong_library_gradient():
    @torch.library.custom_op("inplace_tests::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    def backward(ctx, grad):
        x, = ctx.saved_tensors
        raw(x)[...] = 2 * raw(x) * raw(grad)
        return x.detach()

    square.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    model = Block(square, before=torch.sigmoid)
    train(model, model.parameters())


@case
def right_own_intermediate():
    """The backward makes its results in what its forward has made."""
    class Gated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x.sigmoid(), x.tanh()
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            given = grad * b * a * (1 - a)
            raw(b).copy_(grad * a * (1 - b * b))
            return given + b

    model = Block(Gated.apply)
    train(model, model.parameters())


@case
def wrong_second_backward():
    model = Block(Square.apply)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(6, 8)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()


@case
def right_own_memory():
    """The backward overwrites a saved input that no other node needs, as Liger's kernels do."""
    model = Block(Square.apply)
    train(model, model.parameters())


@case
def right_own_memory_of_a_view():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    train(lambda x: model[1](Square.apply(model[0](x.view(2, 3, 8)).view(6, 8))), model.parameters())


@case
def right_mark_dirty():
    class Relu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.clamp_(min=0)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * (ctx.saved_tensors[0] > 0)

    model = Block(Relu.apply)
    train(model, model.parameters())


@case
def right_softmax_reused():
    """The backward overwrites the softmax that the forward made, as Megatron's cross entropy does."""

    class CrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, labels):
            softmax = logits.softmax(1)
            ctx.save_for_backward(softmax, labels)
            return -softmax.gather(1, labels[:, None]).log().mean()

        @staticmethod
        def backward(ctx, grad):
            softmax, labels = ctx.saved_tensors
            rows = torch.arange(len(labels))
            raw(softmax)[rows, labels] -= 1
            return softmax.mul_(grad / len(labels)), None

    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    model = Block(torch.relu)
    train(model, model.parameters(), loss_of=lambda y: CrossEntropy.apply(y, labels))


@case
def right_checkpoint():
    from torch.utils.checkpoint import checkpoint
    model = Block(Exp.apply)
    train(lambda x: checkpoint(model, x, use_reentrant=False), model.parameters())
    model = Block(lambda h: Gate.apply(h, "save", lambda: torch.empty(6, 8)))
    train(lambda x: checkpoint(model, x.requires_grad_(), use_reentrant=True), model.parameters())


@case
def right_packed():
    class Packed(torch.autograd.graph.saved_tensors_hooks):
        def __init__(self):
            super().__init__(lambda tensor: (tensor.device, tensor.to("cpu", copy=True)), lambda packed: packed[1].to(packed[0]))

    model = Block(lambda h: Exp.apply(Square.apply(h)))

    def forward(x):
        with Packed():
            return model(x)

    train(forward, model.parameters())


@case
def right_twice_differentiated():
    model = Block(lambda h: Weighted.apply(h, model.scale))
    model.scale = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        x = torch.randn(6, 8, requires_grad=True)
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        optimizer.zero_grad()
        (model(x).square().mean() + gradient.square().mean()).backward(retain_graph=True)
        optimizer.step()


@case
def right_transforms():
    from torch.func import grad, vmap

    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x ** 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3 * ctx.saved_tensors[0] ** 2

    model = Block(Cube.apply)
    train(model, model.parameters())
    vmap(grad(lambda x: Cube.apply(x).sum()))(torch.randn(3, 8))


@case
def right_views():
    class Halves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:, :4], x[:, 4:]

        @staticmethod
        def backward(ctx, one, two):
            return torch.cat([one, two], 1)

    model = Block(lambda h: torch.cat(Halves.apply(h), 1))
    train(model, model.parameters())


@case
def right_transposed_views():
    """There are as many patches as channels, so that a transposed view has the shape of its base."""
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.norm = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16)
            self.mix, self.head = nn.Conv1d(16, 16, 1), nn.Linear(16, 2)

        def forward(self, x):
            tokens = self.norm(self.patch(x).flatten(2).transpose(1, 2))
            return self.head(self.mix(tokens.transpose(1, 2)).transpose(1, 2).mean(1))

    model = Patches()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 16, 16)).pow(2).sum().backward()
        optimizer.step()


@case
def right_gradient_passed_on():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg()

    class Same(Reverse):
        @staticmethod
        def backward(ctx, grad):
            return grad

    model = Block(lambda h: Same.apply(Reverse.apply(h)), lambda h, y: h + y)
    train(model, model.parameters())


@case
def right_main_grad():
    """The backward adds to a gradient of its own, as Megatron's fused accumulation does."""

    class Fused(Product):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.main_grad = weight.main_grad
            return Product.forward(ctx, x, weight)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            ctx.main_grad.add_(x.t() @ grad)
            return grad @ weight.t(), None

    weight = nn.Parameter(torch.randn(8, 8))
    weight.main_grad = torch.zeros(8, 8)
    model = Block(lambda h: Fused.apply(Fused.apply(h, weight), weight))
    train(model, model.parameters())


@case
def right_fused_update():
    """The backward updates the weight, as LOMO does."""

    class Updated(Product):
        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            given = grad @ weight.t()
            with torch.no_grad():
                weight.sub_(x.t() @ grad, alpha=0.01)
            return given, None

    weight = nn.Parameter(torch.randn(8, 8))
    model = Block(lambda h: Updated.apply(h, weight))
    train(model, model.parameters())


@case
def right_ctx_with_names_of_nodes():
    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.name = "named"
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    model = Block(lambda h: Named.apply(Named.apply(h)))
    train(model, model.parameters())


@case
def right_library_writes():
    @torch.library.custom_op("inplace_tests::scale_", mutates_args=("x",))
    def scale_(x: torch.Tensor) -> None:
        raw(x)[...] *= 2

    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))

    def forward(x):
        scale_(x)
        return model(x)

    train(forward, model.parameters())


@case
def right_compiled():
    model = torch.compile(Block(lambda h: Exp.apply(-h) + h.tanh() * 2), backend="aot_eager")
    train(model, model.parameters())


if __name__ == "__main__":
    main()
