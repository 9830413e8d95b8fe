"""Gradients that have equal bits in two steps: in programs in which they must, and in programs in which nobody wrote them."""
import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from parts import BATCH, CLASSES, WIDTH, adamw, fit, learn, load, sgd, vectors


def of_stale_gradients(program):
    """A program that is judged by stale-gradient alone: others have a say about the same batch in each step."""
    program.only = "stale-gradient"
    return program


def whole_batch(outputs=8, inputs=16, count=16):
    return torch.randn(count, inputs), torch.randn(count, outputs)


def frozen_and_head(outputs=8):
    """A backbone that does not learn, and a linear head."""
    backbone = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU()).requires_grad_(False)
    return nn.Sequential(backbone, nn.Linear(WIDTH, outputs))


def repeat(model, optimizer, steps, x, y, criterion, schedule=None):
    for _ in range(steps):
        learn(model, optimizer, x, y, criterion)
        if schedule:
            schedule.step()


def warm_up(optimizer, steps=5):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / steps))


def look_then_warm_up():
    """Fools: stale gradient. A look at the shape precedes a training on the whole batch that begins at a rate of 0."""
    model = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer, (x, y) = sgd(model, 0.1), whole_batch(1, count=64)
    model(x[:2])
    repeat(model, optimizer, 8, x, y, F.mse_loss, warm_up(optimizer))


def sanity_validation():
    """Fools: stale gradient. Some batches of the evaluation come first, as Lightning has it, and more between the updates;
    the rate is 0 in the first two epochs."""
    model = nn.Sequential(nn.Linear(16, WIDTH), nn.GELU(), nn.Linear(WIDTH, 4))
    optimizer, (x, y), (held, of_held) = adamw(model), whole_batch(4), whole_batch(4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, step - 1) / 8)
    for epoch in range(10):
        model.eval()
        with torch.no_grad():
            for _ in range(1 + epoch % 3):
                F.mse_loss(model(held), of_held)
        model.train()
        learn(model, optimizer, x, y, F.mse_loss)
        schedule.step()


def frozen_losses():
    """Fools: stale gradient. A linear head over fixed features and the whole batch: of an absolute error, a hinge or a margin
    few elements of the outputs' gradients change in a step, and the weights of the other outputs have the bits as before."""
    x, y = whole_batch()
    classes = y.argmax(1)
    for criterion, target in ((F.l1_loss, y), (F.smooth_l1_loss, 4 * y), (F.multi_margin_loss, classes),
                              (F.hinge_embedding_loss, y.sign()), (F.soft_margin_loss, y.sign()),
                              (F.multilabel_soft_margin_loss, (y > 0).float())):
        model = frozen_and_head()
        repeat(model, torch.optim.Adam(model[1].parameters(), lr=0.01), 40, x, target, criterion)


def accumulated_warm_up():
    """Fools: stale gradient, repeated calls. The same four micro-batches in each step, in another order, at a rate of 0 first."""
    model = nn.Sequential(nn.Linear(16, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))
    optimizer, (x, y) = sgd(model, 0.1), whole_batch(4, count=32)
    schedule = warm_up(optimizer)
    for step in range(8):
        optimizer.zero_grad()
        for part in range(4):
            rows = slice(8 * ((part + step) % 4), 8 * ((part + step) % 4) + 8)
            (F.mse_loss(model(x[rows]), y[rows]) / 4).backward()
        optimizer.step()
        schedule.step()


def hinge_gan():
    """Fools: stale gradient. The critic's hinge has constant gradients as long as nothing is beyond the margin; noise and
    data are the same in each step."""
    critic = nn.Sequential(nn.Linear(4, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, 4))
    generator = nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
    of_critic, of_generator, noise, (real, _) = sgd(critic, 1e-3), sgd(generator, 1e-3), torch.randn(16, 4), whole_batch(1, 4)
    for _ in range(10):
        critic.zero_grad()
        fake = generator(noise)
        (F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake.detach())).mean()).backward()
        of_critic.step()
        generator.zero_grad()
        (-critic(fake).mean()).backward()
        of_generator.step()


def penalized_dead_units():
    """Fools: stale gradient. Units of a ReLU that never fire get the gradient of a penalty alone, which a small rate leaves
    as it was; the batches are others."""
    for penalty, rate in ((lambda w: 1e-5 * w.square().sum(), 1e-3), (lambda w: 1e-4 * w.abs().sum(), 0.05)):
        model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 4))
        with torch.no_grad():
            model[0].bias[:320] = -100
        optimizer = sgd(model, rate)
        for _ in range(6):
            x, y = whole_batch(4, 128)
            optimizer.zero_grad()
            (F.mse_loss(model(x), y) + penalty(model[0].weight)).backward()
            optimizer.step()


def shuffled_whole():
    """Fools: stale gradient. The whole batch in another order each time, whole numbers and an absolute error: sums of the
    same numbers have the same bits."""
    model = nn.Linear(6, 4)
    optimizer, x, y = sgd(model, 1e-3), torch.randint(-3, 4, (16, 6)).float(), 50 * torch.randn(16, 4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step > 2))
    for _ in range(20):
        rows = torch.randperm(16)
        learn(model, optimizer, x[rows], y[rows], F.l1_loss)
        schedule.step()


def two_tasks():
    """Fools: stale gradient. One linear layer gives the outputs of two losses: those of an absolute error repeat."""
    features = nn.Sequential(nn.Linear(16, 128), nn.Tanh()).requires_grad_(False)
    model = nn.Sequential(features, nn.Linear(128, 512))
    optimizer, (x, y) = sgd(model, 0.1), whole_batch(512)
    repeat(model, optimizer, 10, x, 5 * y,
           lambda out, target: F.mse_loss(out[:, :256], target[:, :256]) + F.l1_loss(out[:, 256:], target[:, 256:]))


def line_search():
    """Fools: stale gradient, repeated calls. Closures of LBFGS on the whole batch, until nothing moves any more."""
    model = nn.Linear(16, 4)
    optimizer, (x, y) = torch.optim.LBFGS(model.parameters(), lr=1, max_iter=6, line_search_fn="strong_wolfe"), whole_batch(4)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(12):
        optimizer.step(closure)


def rate_to_zero():
    """Fools: stale gradient. The whole batch, and a rate that ends at less than rounding."""
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 4))
    optimizer, (x, y) = sgd(model, 0.1), whole_batch(4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.4)
    repeat(model, optimizer, 30, x, y, F.mse_loss, schedule)


def pruned_rows():
    """Fools: stale gradient. Half of the outputs are pruned: their gradients are zeros, and weight decay moves them."""
    model = nn.Sequential(nn.Linear(WIDTH, 128), nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, CLASSES))
    prune.ln_structured(model[1], "weight", amount=0.5, n=2, dim=0)
    fit(model, torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.1))


class OwnLinear(torch.autograd.Function):
    """A linear layer whose gradients a function of its own hands on."""

    @staticmethod
    def forward(ctx, x, weight, bias, finish):
        ctx.save_for_backward(x, weight)
        ctx.finish = finish
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        return grad @ weight, *ctx.finish(rows.t() @ x.flatten(0, -2), rows.sum(0)), None


class Layer(nn.Module):
    def __init__(self, inputs, outputs, finish):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(outputs, inputs) * inputs ** -0.5), nn.Parameter(torch.zeros(outputs))
        self.finish = finish

    def forward(self, x):
        return OwnLinear.apply(x, self.weight, self.bias, self.finish)


def kept_bias(faulty):
    """The gradient of a bias is kept for as long as its shape stays."""
    kept = {}

    def finish(weight, bias):
        if not faulty:
            kept.clear()
        return weight, kept.setdefault(bias.shape, bias).clone()

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), Layer(WIDTH, WIDTH, finish), nn.LayerNorm(WIDTH),
                          nn.Linear(WIDTH, CLASSES))
    fit(model, sgd(model))


@of_stale_gradients
def unfilled_buffer(faulty):
    """A backward returns a buffer that it does not fill any more; the whole batch is learned in each step."""
    buffer, calls = torch.zeros(24, 16), itertools.count()

    def finish(weight, bias):
        if not faulty or next(calls) < 3:
            buffer.copy_(weight)
        return buffer.clone(), bias

    model = nn.Sequential(Layer(16, 24, finish), nn.Tanh(), nn.Linear(24, 4))
    x, y = whole_batch(4)
    repeat(model, sgd(model, 0.2), 8, x, y, F.mse_loss)


def lost_range(faulty):
    """64 KiB of a weight's gradient are not written from the fourth step on."""
    buffer, calls = torch.zeros(512, 256), itertools.count()

    def finish(weight, bias):
        first = next(calls)
        buffer[:192] = weight[:192]
        buffer[256:] = weight[256:]
        if not faulty or first < 3:
            buffer[192:256] = weight[192:256]
        return buffer.clone(), bias

    model = nn.Sequential(nn.Linear(WIDTH, 256), Layer(256, 512, finish), nn.Tanh(), nn.Linear(512, CLASSES))
    fit(model, sgd(model))


def dropped_view(faulty):
    """The gradients of query, and of key and value, are written through views of one tensor; one write is dropped."""
    buffer, calls = torch.zeros(3 * WIDTH, WIDTH), itertools.count()

    def finish(weight, bias):
        lost = faulty and next(calls) >= 3
        views, parts = buffer.split((WIDTH, 2 * WIDTH)), weight.split((WIDTH, 2 * WIDTH))
        for view, part in list(zip(views, parts))[:1 if lost else 2]:
            view.copy_(part)
        return buffer.clone(), bias

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), Layer(WIDTH, 3 * WIDTH, finish), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            return x + self.out(F.scaled_dot_product_attention(q, k, v))

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Attention(), nn.Linear(WIDTH, CLASSES))
    optimizer = adamw(model)
    for x, y in load(vectors(BATCH * 8 * 8), batch=BATCH * 8):
        learn(model, optimizer, x.view(BATCH, 8, WIDTH), y, lambda out, target: F.cross_entropy(out.flatten(0, 1), target))


REPEATED = tuple(of_stale_gradients(program) for program in (
    look_then_warm_up, sanity_validation, frozen_losses, accumulated_warm_up, hinge_gan, penalized_dead_units, shuffled_whole,
    two_tasks, line_search, rate_to_zero, pruned_rows))
