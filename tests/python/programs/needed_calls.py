"""Memory that more than one call needs, and that is written between them, or only looks alike (needed_cases.py)."""
import torch
from needed_cases import Block, Exp, Gate, Inside, Weighted, case, main, named, raw, train
from torch import nn


@case
def wrong_buffer_saved():
    buffer = torch.empty(6, 8)
    model = Block(lambda h: Gate.apply(Gate.apply(h, "save", lambda: buffer), "save", lambda: buffer))
    train(model, model.parameters())


@case
def wrong_buffer_of_ctx():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.buffer = torch.empty(6, 8)
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return Gate.apply(self.two(Gate.apply(self.one(x), "attribute", lambda: self.buffer)), "attribute", lambda: self.buffer)

    model = named(nn.Sequential(Twice(), Twice()))
    model[1].buffer = model[0].buffer
    train(model, model.parameters())


@case
def wrong_statistics_of_ctx():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            scale.copy_(x.abs().mean(0))
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.scale, None

    scale = torch.empty(8)
    model = Block(lambda h: Scaled.apply(Scaled.apply(h, scale).tanh(), scale))
    train(model, model.parameters())


@case
def wrong_between_modules():
    def clamp(h):
        raw(h).clamp_(min=0)
        return h

    class Clamped(nn.Sequential):
        def forward(self, x):
            return self[2](clamp(self[1](self[0](x))))

    model = named(Clamped(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    train(model, model.parameters())


@case
def wrong_weight_between():
    scale = nn.Parameter(torch.ones(8))
    model = Block(lambda h: Weighted.apply(h, scale))
    train(model, [*model.parameters(), scale], between=lambda: scale.data.mul_(1.5))


@case
def wrong_batch_refilled():
    batch = torch.randn(6, 8)
    weight = nn.Parameter(torch.ones(8))
    model = Block(lambda h: Weighted.apply(h, weight), before=lambda h: Weighted.apply(batch, weight))

    def refill():
        raw(batch)[...] = raw(torch.randn(6, 8))

    train(model, [weight, *model.parameters()], between=refill)


@case
def wrong_array_refilled():
    array = torch.randn(6, 8, device="cpu").numpy()
    batch = torch.from_numpy(array)
    model = Block(torch.tanh, before=lambda h: h).cpu()

    def refill():
        array[...] += 1

    train(lambda x: model(batch), model.parameters(), between=refill)


def clipped(h):
    """NumPy has the memory, and writes it."""
    array = h.detach().numpy()
    array.clip(-0.1, 0.1, out=array)
    return h


class OnCpu(nn.Module):
    """A model on the CPU. `behind` gets the output of the first layer after `act` has used it."""

    def __init__(self, act, behind=lambda h: None):
        nn.Module.__init__(self)
        self.first, self.act, self.last, self.behind = nn.Linear(8, 8), act, nn.Linear(8, 4), behind
        named(self.cpu())

    def forward(self, x):
        h = self.first(x.cpu())
        y = self.act(h)
        self.behind(h)
        return self.last(y)


@case
def wrong_input_of_linear():
    model = OnCpu(nn.Linear(8, 8), behind=clipped)
    train(model, model.parameters())


@case
def wrong_result_of_tanh():
    model = OnCpu(nn.Tanh())
    model.act.register_forward_hook(lambda module, args, out: setattr(module, "out", out.detach()))
    train(model, model.parameters(), between=lambda: clipped(model.act.out))


@case
def wrong_in_a_later_step():
    """The write happens from the ninth step to the last one before the next power of two."""
    calls = []
    model = OnCpu(nn.Linear(8, 8), behind=lambda h: calls.append(1) or len(calls) > 8 and clipped(h))
    train(model, model.parameters(), steps=15)


class ActsBetween(nn.Module):
    """A model in which `write` gets the output of the first layer after `act` has used it; later only arithmetic reads it."""

    def __init__(self, act, write):
        nn.Module.__init__(self)
        self.first, self.act, self.last, self.write = nn.Linear(8, 8), act, nn.Linear(8, 4), write
        named(self)

    def forward(self, x):
        h = self.first(x)
        y = self.act(h)
        self.write(h)
        return self.last(y + h)


@case
def wrong_data_behind_a_layer():
    model = ActsBetween(nn.Linear(8, 8), lambda h: raw(h).mul_(0.5))
    train(model, model.parameters())


def score(loss_of, behind):
    """Trains a model whose scores go to a loss, and then to the function `behind`."""
    def loss(scores):
        value = loss_of(scores, torch.full_like(scores, 0.5))
        behind(scores)
        return value / 2

    model = Block(lambda h: h.tanh())
    train(model, model.parameters(), loss_of=loss)


@case
def wrong_scores_of_a_loss():
    score(nn.functional.mse_loss, behind=lambda scores: raw(scores).mul_(0.5))


@case
def wrong_scores_of_logits():
    score(nn.functional.binary_cross_entropy_with_logits, behind=lambda scores: raw(scores).sigmoid_())


@case
def right_scores_that_no_backward_reads():
    score(nn.functional.l1_loss, behind=lambda scores: raw(scores).mul_(0.5))
    score(lambda scores, wanted: nn.functional.cross_entropy(scores, wanted.softmax(1)), behind=lambda scores: raw(scores).mul_(0.5))


@case
def right_copy_of_scores():
    score(nn.functional.huber_loss, behind=lambda scores: raw(scores.clone()).mul_(0.5))


class Chunks(nn.Module):
    """`act` takes the second of three parts of what a layer gives, and `between` gets the parts behind it."""

    def __init__(self, act, between):
        nn.Module.__init__(self)
        self.first, self.act, self.last = nn.Linear(8, 24), act, nn.Linear(8, 4)
        self.between = between
        named(self)

    def forward(self, x):
        query, key, value = self.first(x).chunk(3, -1)
        y = self.act(key)
        self.between(query, key, value)
        return self.last(query * y + value)


def halved_part(query, key, value):
    raw(key).mul_(0.5)


@case
def wrong_part_behind_a_layer():
    model = Chunks(nn.Linear(8, 8), halved_part)
    train(model, model.parameters())


@case
def right_part_behind_a_layer():
    """Another part is written, which the layer has not saved, or the layer is frozen; rows that are one in memory."""
    def others(query, key, value):
        for part in query, value:
            part.data = raw(part) * 1
            raw(part).mul_(0.5)

    def beside(query, key, value):
        whole = raw(key).as_strided((6, 24), (24, 1), 0)
        whole[:, 16:].mul_(0.5)  # nobody's backward needs the values

    model = Chunks(nn.Linear(8, 8), others)
    train(model, model.parameters())
    model = Chunks(nn.Linear(8, 8), beside)
    train(model, model.parameters())
    model = Chunks(nn.Linear(8, 8).requires_grad_(False), lambda query, key, value: raw(key).mul_(0.5))
    train(model, [one for one in model.parameters() if one.requires_grad])
    model = ActsBetween(Inside(lambda h: nn.functional.silu(h[:1].expand(6, 8))), lambda h: raw(h)[1:].mul_(0.5))
    train(model, model.parameters())


@case
def wrong_data_behind_a_product():
    weight = nn.Parameter(torch.randn(8, 8))
    model = ActsBetween(Inside(lambda h: h.tanh() @ weight), lambda h: raw(model.act.kept).mul_(0.5))
    model.act.op = lambda h: setattr(model.act, "kept", h.tanh()) or model.act.kept @ weight
    train(model, [*model.parameters(), weight])


@case
def right_data_behind_a_layer():
    """Layers whose backward needs no values of their input, and writes that come before the layer."""
    for act in nn.ReLU(), nn.Linear(8, 8).requires_grad_(False), nn.Identity(), Inside(lambda h: h.clone() * 2):
        model = ActsBetween(act, lambda h: raw(h).mul_(0.5))
        train(model, [one for one in model.parameters() if one.requires_grad])
    model = ActsBetween(Inside(lambda h: nn.functional.silu(raw(h).mul_(0.5) + h)), lambda h: None)
    train(model, model.parameters())


class Columns(nn.Module):
    """A product with what `workspace_of()` gives, an array of NumPy in which each call puts its input."""

    def __init__(self, workspace_of):
        nn.Module.__init__(self)
        self.workspace_of = workspace_of
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8, device="cpu")), nn.Parameter(torch.zeros(8, device="cpu"))

    def forward(self, x):
        array = self.workspace_of()
        array[...] = x.detach().numpy()
        return (torch.from_numpy(array) @ self.weight + self.bias).view(2, 3, 8)


class TwoColumns(nn.Module):
    def __init__(self, workspace_of):
        nn.Module.__init__(self)
        self.one, self.two, self.last = Columns(workspace_of), Columns(workspace_of), nn.Linear(8, 4, device="cpu")
        named(self)

    def forward(self, x):
        return self.last(self.one(x.cpu()) + self.two(2 * x.cpu()))


@case
def wrong_columns_of_a_product():
    workspace = torch.empty(6, 8, device="cpu").numpy()
    model = TwoColumns(lambda: workspace)
    train(model, model.parameters())


@case
def right_columns_of_a_product():
    model = TwoColumns(lambda: torch.empty(6, 8, device="cpu").numpy())
    train(model, model.parameters())


@case
def right_written_before_it_is_saved():
    model = OnCpu(nn.Linear(8, 8))
    model.act.register_forward_pre_hook(lambda module, args: clipped(*args))
    train(model, model.parameters())


@case
def right_written_and_not_needed():
    """The layer that took it is frozen, and saves nothing; pooling saves it for its shape."""
    frozen = nn.Linear(8, 8).requires_grad_(False)
    for act in frozen, nn.ReLU(), nn.AvgPool1d(1):
        model = OnCpu(act, behind=clipped)
        train(model, [one for one in model.parameters() if one.requires_grad])


@case
def right_memory_that_is_read():
    model = OnCpu(nn.Tanh(), behind=lambda h: h.detach().numpy().sum())
    train(model, model.parameters())


@case
def right_arrays_in_turn():
    arrays = [torch.randn(6, 8, device="cpu").numpy() for _ in range(2)]
    batches = [torch.from_numpy(array) for array in arrays]
    model = Block(torch.tanh).cpu()
    turn = [0]

    def refill():
        turn[0] = 1 - turn[0]
        arrays[turn[0]][...] += 1

    train(lambda x: model(batches[turn[0]]), model.parameters(), between=refill)


@case
def right_pool():
    pool = torch.empty(6, 8)

    class Pooled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raw(pool)[...] = 2 * raw(x)
            return pool.view_as(pool)

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    model = Block(lambda h: Pooled.apply(h).sin())
    train(model, model.parameters())


@case
def right_written_without_gradients():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(x):
        with torch.no_grad():
            h = model[1](model[0](x))
            raw(h)[...] *= 2
            model[2](h)
        return model(x)

    train(forward, model.parameters())


@case
def right_recurrent():
    model = nn.ModuleDict({"cell": nn.Linear(8, 8), "out": nn.Linear(8, 4)})

    def forward(x):
        h = x
        for _ in range(4):
            h = Exp.apply(-model["cell"](h))
        return model["out"](h)

    train(forward, model.parameters())


if __name__ == "__main__":
    main()
