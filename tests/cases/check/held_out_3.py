"""Programs that judge the rule of stale gradients and never set it: faults, and right ones in which gradients repeat."""
import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from parts import Case, adamw, sgd
from repeated_gradients import of_stale_gradients


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def later(optimizer, steps):
    """A rate of 0 for some steps."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step >= steps))


def boxes_by_convolution():
    """Distances by a 1x1 convolution over fixed maps of features."""
    features, head = nn.Sequential(nn.Conv2d(3, 256, 3, padding=1), nn.ReLU()).requires_grad_(False), nn.Conv2d(256, 256, 1)
    optimizer, x, y = adamw(head), torch.randn(4, 3, 6, 6), torch.randn(4, 256, 6, 6)
    for _ in range(15):
        update(optimizer, F.l1_loss(head(features(x)), y))


def quantiles():
    model, share = nn.Linear(8, 9), torch.linspace(0.1, 0.9, 9)
    optimizer, x, y = sgd(model), torch.rand(24, 8), torch.randn(24, 1)
    for _ in range(50):
        apart = y - model(x)
        update(optimizer, torch.maximum(share * apart, (share - 1) * apart).mean())


def triplets():
    """Five calls in a step, and in every other one some that nothing is learned from."""
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer, (anchor, near, far) = sgd(model, 1e-3), torch.randn(3, 16, 12)
    schedule = later(optimizer, 3)
    for step in range(12):
        if step % 2 == 0:
            with torch.no_grad():
                model(anchor[:1]), model(near)
        ranking = F.margin_ranking_loss(model(anchor).sum(1), model(far).sum(1), torch.ones(16))
        update(optimizer, F.triplet_margin_loss(model(anchor), model(near), model(far)) + ranking)
        schedule.step()


def unrolled():
    """A cell and a head that are called for each of seven times."""
    cell, head = nn.GRUCell(6, 16), nn.Linear(16, 3)
    optimizer, x, y = sgd(nn.ModuleList([cell, head]), 0.01), torch.randn(7, 8, 6), torch.randn(7, 8, 3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 4))
    for _ in range(10):
        state, loss = torch.zeros(8, 16), 0
        for time in range(7):
            state = cell(x[time], state)
            loss = loss + F.l1_loss(head(state), y[time])
        update(optimizer, loss)
        schedule.step()


def replay():
    """Q-learning of one batch: the loss looks at one action of each row, and the first layer has a rate of 0."""
    model, target = (nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 6)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0}, {"params": model[2].parameters()}], 0.01)
    state, action, gain = torch.randn(32, 4), torch.randint(6, (32, 1)), 3 * torch.randn(32, 1)
    for _ in range(30):
        with torch.no_grad():
            model(torch.randn(1, 4)).argmax()
            goal = gain + 0.9 * target(state).max(1, keepdim=True)[0]
        update(optimizer, F.smooth_l1_loss(model(state).gather(1, action), goal))


def masked_rows():
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5))
    optimizer, x, y = torch.optim.Adam(model[2].parameters(), 1e-2), torch.randn(32, 10), torch.randn(32, 5)
    mask = (torch.arange(32) % 11 == 0)[:, None]
    for _ in range(40):
        update(optimizer, ((model(x) - y).abs() * mask).sum())


def coarse():
    """Numbers of 16 bits, other batches."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).bfloat16()
    optimizer = sgd(model, 1e-2)
    for _ in range(60):
        x, y = torch.randn(8, 24).bfloat16().split((16, 8), 1)
        update(optimizer, F.l1_loss(model(x), y))


def wide_and_deep():
    """Half of the inputs never change, and half of the outputs have an absolute error."""
    deep, top = nn.Sequential(nn.Linear(16, 64), nn.Tanh()), nn.Linear(64 + 512, 512)
    optimizer, x, wide, y = sgd(nn.ModuleList([deep, top]), 1e-2), torch.randn(16, 16), torch.randn(16, 512), torch.randn(16, 512)
    for _ in range(14):
        out = top(torch.cat([deep(x), wide], 1))
        update(optimizer, F.mse_loss(out[:, :128], y[:, :128]) + F.l1_loss(out[:, 128:], 9 * y[:, 128:]))


def of_hook(hook, steps=12):
    model = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 4))
    for parameter in model.parameters():
        parameter.register_hook(hook)
    optimizer = sgd(model, 1e-2)
    for _ in range(steps):
        update(optimizer, F.mse_loss(model(torch.rand(16, 16)), 5 + torch.randn(16, 4)))


def clamped_gradients():
    of_hook(lambda grad: grad.clamp(-1e-4, 1e-4))


def signs_of_gradients():
    of_hook(lambda grad: grad.sign() * grad.abs().mean().log2().round().exp2())


def group_lasso():
    """Half of the units have gradients of their penalties alone."""
    model = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 4))
    with torch.no_grad():
        model[0].bias[:256] = -60
    optimizer = sgd(model, 1e-3)
    for _ in range(8):
        rows, each = model[0].weight.norm(dim=1).sum(), model[0].weight.abs().sum()
        update(optimizer, F.mse_loss(model(torch.randn(16, 128)), torch.randn(16, 4)) + 1e-5 * rows + 1e-4 * each)


def side_pass():
    """A pass for gradients alone has other data each time, the one that is learned from has not."""
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer, x, y = sgd(model, 0.01), torch.randn(12, 5), torch.randn(12, 4)
    schedule = later(optimizer, 2)
    for _ in range(8):
        torch.autograd.grad(F.mse_loss(model(x + 0.1 * torch.randn(12, 5)), y), list(model.parameters()))
        update(optimizer, F.mse_loss(model(x), y))
        schedule.step()


def estimators():
    """As skorch fits: a look at the model, then epochs of one batch and a validation each, some at a rate of 0."""
    x, label = torch.randn(60, 20), torch.randint(3, (60,))
    for criterion, rate in itertools.product((nn.MultiMarginLoss(), nn.CrossEntropyLoss()), (0.0, 0.02)):
        model = nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3))
        optimizer = sgd(model, rate)
        model.eval()(x[:1])
        for _ in range(8):
            update(optimizer, criterion(model.train()(x[:48]), label[:48]))
            with torch.no_grad():
                criterion(model.eval()(x[48:]), label[48:])


def tied_words():
    """A transformer whose last layer has the weight of its first, in two parts of a batch."""
    words, layer = nn.Embedding(20, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    head = nn.Linear(16, 20, bias=False)
    head.weight = words.weight
    optimizer, text = adamw(nn.ModuleList([words, layer, head])), torch.randint(20, (8, 9))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 3))
    for _ in range(10):
        optimizer.zero_grad()
        for part in text.split(4):
            scores = head(layer(words(part[:, :-1]))).flatten(0, 1)
            (F.cross_entropy(scores, part[:, 1:].flatten(), label_smoothing=0.1) / 2).backward()
        optimizer.step()
        schedule.step()


def recomputed():
    first, second = nn.Linear(8, 16), nn.Linear(16, 4)
    optimizer, x, y = sgd(nn.ModuleList([first, second]), 0.1), torch.randn(16, 8), torch.randn(16, 4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 6)
    for _ in range(8):
        hidden = checkpoint(lambda v: first(v).relu(), x, use_reentrant=False)
        update(optimizer, F.huber_loss(second(hidden), y, delta=0.1))
        schedule.step()


def multipliers():
    """Multipliers of constraints are a tensor of no module."""
    model, factors = nn.Linear(6, 4), torch.zeros(4, requires_grad=True)
    optimizer, x, y = torch.optim.SGD([*model.parameters(), factors], 0.05), torch.randn(16, 6), torch.randn(16, 4)
    for _ in range(12):
        out = model(x)
        update(optimizer, F.mse_loss(out, y) + (factors * (out.detach().mean(0) - 0.1)).sum())


def single_bits():
    """One of twelve inputs is 1, and the margin has few gradients: sums of few numbers are often equal."""
    model = nn.Linear(12, 5)
    optimizer = sgd(model, 0.1)
    for _ in range(60):
        which = torch.randint(12, (16,))
        update(optimizer, F.multi_margin_loss(model(F.one_hot(which, 12).float()), which % 5))


def grey_levels():
    model = nn.Sequential(nn.Flatten(), nn.Linear(196, 10))
    optimizer = sgd(model, 0.1)
    for _ in range(60):
        x = (torch.rand(16, 14, 14) * 1.6 - 0.3).clamp(0, 1).mul(255).round() / 255
        update(optimizer, F.multi_margin_loss(model(x), (x.mean((1, 2)) * 50 % 10).long()))


class OwnGradient(torch.autograd.Function):
    """`function` of an input and a weight, whose weight gradient `finish` hands on."""

    @staticmethod
    def forward(ctx, x, weight, function, finish):
        ctx.save_for_backward(x, weight)
        ctx.function, ctx.finish = function, finish
        return function(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            of_x, of_weight = torch.autograd.grad(ctx.function(x, weight), (x, weight), grad)
        return of_x, ctx.finish(of_weight), None, None


class Own(nn.Module):
    def __init__(self, weight, function, finish):
        super().__init__()
        self.weight, self.function, self.finish = nn.Parameter(weight), function, finish

    def forward(self, x):
        return OwnGradient.apply(x, self.weight, self.function, self.finish)


def in_part(faulty, shape, kept, since=3):
    """A buffer of which the rows of `kept` are not written any more."""
    buffer, calls = torch.zeros(shape), itertools.count()

    def finish(gradient):
        rows = torch.ones(shape[0], dtype=torch.bool)
        rows[kept] = not faulty or next(calls) < since
        buffer[rows] = gradient[rows]
        return buffer.clone()

    return finish


def once(faulty):
    """The first gradient again and again."""
    store = {}

    def finish(gradient):
        if not faulty:
            store.clear()
        return store.setdefault("first", gradient).clone()

    return finish


def half_channels(faulty):
    finish = in_part(faulty, (32, 8, 3, 3), slice(16, 32))
    own = Own(torch.randn(32, 8, 3, 3) * 0.1, lambda x, weight: F.conv2d(x, weight, padding=1), finish)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), own, nn.GroupNorm(4, 32), nn.GELU(), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(32, 5))
    optimizer = adamw(model)
    for _ in range(9):
        update(optimizer, F.cross_entropy(model(torch.randn(16, 3, 8, 8)), torch.randint(5, (16,))))


def kept_gain(faulty):
    own = Own(torch.ones(24), lambda x, weight: F.layer_norm(x, (24,), weight), once(faulty))
    model = nn.Sequential(nn.Linear(8, 24), own, nn.SiLU(), nn.Linear(24, 3))
    optimizer = sgd(model)
    for _ in range(9):
        update(optimizer, F.mse_loss(model(torch.randn(12, 8)), torch.randn(12, 3)))


def kept_over_time(faulty):
    """A layer is called seven times in a step, and behind the fourth it gets the gradient of another step."""
    cell, head, kept, steps = nn.Linear(22, 16), nn.Linear(16, 3), {}, itertools.count()
    optimizer = sgd(nn.ModuleList([cell, head]))

    def after(parameter):
        if next(steps) < 3 or not faulty:
            kept["grad"] = parameter.grad.clone()
        parameter.grad.copy_(kept["grad"])

    cell.weight.register_post_accumulate_grad_hook(after)
    for _ in range(9):
        state = torch.zeros(8, 16)
        for x in torch.randn(7, 8, 6):
            state = torch.tanh(cell(torch.cat([x, state], 1)))
        update(optimizer, F.mse_loss(head(state), torch.randn(8, 3)))


def missed_bucket(faulty):
    """Gradients go through a bucket, and the copy into it misses a layer from the third step on."""
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    optimizer, parameters = adamw(model, 1e-2), list(model.parameters())
    bucket = [torch.zeros_like(parameter) for parameter in parameters]
    for step in range(9):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(16, 8)), torch.randint(4, (16,))).backward()
        for place, (part, parameter) in enumerate(zip(bucket, parameters)):
            if not faulty or step < 2 or place not in (2, 3):
                part.copy_(parameter.grad)
            parameter.grad.copy_(part)
        optimizer.step()


def range_of_projection(faulty):
    """64 KiB of a weight's gradient."""
    finish = in_part(faulty, (2048, 64), slice(1024, 1280))
    own = Own(torch.randn(2048, 64) * 0.1, F.linear, finish)
    model = nn.Sequential(nn.Linear(8, 64), nn.LayerNorm(64), own, nn.Softplus(), nn.Linear(2048, 3))
    optimizer = adamw(model)
    for _ in range(8):
        update(optimizer, F.mse_loss(model(torch.randn(5, 6, 8)), torch.randn(5, 6, 3)))


def critic_of_pair(faulty):
    own = Own(torch.randn(24, 4) * 0.4, F.linear, once(faulty))
    critic, maker = nn.Sequential(own, nn.Tanh(), nn.Linear(24, 1)), nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))
    of_critic, of_maker = adamw(critic), adamw(maker)
    for _ in range(9):
        made = maker(torch.randn(16, 3))
        update(of_critic, F.softplus(-critic(torch.randn(16, 4))).mean() + F.softplus(critic(made.detach())).mean())
        update(of_maker, F.softplus(-critic(made)).mean())


HELD_OUT_3 = {program.__name__.replace("_", "-"): Case("stale-gradient", "made up", program) for program in (
    half_channels, kept_gain, kept_over_time, missed_bucket, range_of_projection, critic_of_pair)}

CLEAN_HELD_OUT_3 = {program.__name__: of_stale_gradients(program) for program in (
    boxes_by_convolution, quantiles, triplets, unrolled, replay, masked_rows, coarse, wide_and_deep, clamped_gradients,
    signs_of_gradients, group_lasso, side_pass, estimators, tied_words, recomputed, multipliers, single_bits, grey_levels)}
