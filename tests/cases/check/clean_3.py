"""Clean programs, third part: parameters that are idle, loops of other kinds, modules with a state, code of one's own.

Each is right, though it looks like trouble; see clean.py, which has the table of all.
"""
import torch
from torch import nn
from torch.nn import functional

from clean_2 import mlp, pictures, rows, update


def idle_head():
    """Fools: stale gradient, no gradient, moves without a gradient. Two tasks take turns, and gradients are set to zero,
    not to None: the head that has no turn gets zeros, and AdamW still moves and decays it."""
    body, heads = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.ModuleList([nn.Linear(32, 1), nn.Linear(32, 1)])
    optimizer = torch.optim.AdamW([*body.parameters(), *heads.parameters()], lr=1e-3, weight_decay=0.1)
    for step, (x, y) in enumerate(rows(12)):
        turn = step % 2
        optimizer.zero_grad(set_to_none=False)
        functional.mse_loss(heads[turn](body(x)), -y if turn else y).backward()
        optimizer.step()


def idle_parameter():
    """Fools: no gradient, a parameter that does not move. One branch is used in every third step; in the others its
    gradients are None and Adam leaves it alone."""
    body, rare, head = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *rare.parameters(), *head.parameters()], lr=1e-3)
    for step, (x, y) in enumerate(rows(12)):
        hidden = body(x).relu()
        if step % 3 == 0:
            hidden = hidden + rare(hidden).relu()
        update(optimizer, functional.mse_loss(head(hidden), y))


def hinge():
    """Fools: no gradient, moves without a gradient. The hinge loss is zero where all rows are beyond the margin, as in some
    steps here: then gradients are zero, and momentum alone moves the weights."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(12):
        side = torch.randint(2, (4, 1)) * 2.0 - 1
        x = 0.8 * side + 0.8 * torch.randn(4, 4)
        update(optimizer, (1 - side * model(x)).clamp(min=0).mean())


def closure():
    """Fools: two steps a batch, same input other output. LBFGS asks for loss and gradient of one batch several times within
    a step."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1, max_iter=4, history_size=5, line_search_fn="strong_wolfe")
    for x, y in rows(8, count=64, width=4):
        def evaluate(x=x, y=y):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(evaluate)


def clipping():
    """Fools: clipping after the step, gradients of one norm. Gradients are clipped between backward pass and step, and are
    so large that each step has the same norm; a look at the norm after the step, without a limit, changes nothing."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in rows(10):
        optimizer.zero_grad()
        functional.mse_loss(model(x), 3 * y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        nn.utils.get_total_norm([p.grad for p in model.parameters()])


def stochastic_depth():
    """Fools: no gradient, same input other output. Each branch is left out of half of the steps; evaluation uses all, at a
    scale."""
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)
            self.branches = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(4))

        def forward(self, x):
            x = self.first(x)
            for branch in self.branches:
                if not self.training:
                    x = x + 0.5 * branch(x)
                elif torch.rand(()) < 0.5:
                    x = x + branch(x)
            return self.last(x)

    model = Deep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in rows(12):
        update(optimizer, functional.mse_loss(model(x), y))
    model.eval()
    with torch.no_grad():
        for x, _ in rows(2):
            model(x)


def early_exit():
    """Fools: no gradient, modules that are not called. Each step trains up to an exit drawn for it, and evaluation leaves
    at the first exit that is sure enough; later stages are idle then."""
    stages = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(3))
    exits = nn.ModuleList(nn.Linear(16, 4) for _ in range(3))
    model = nn.ModuleDict({"first": nn.Linear(192, 16), "stages": stages, "exits": exits})
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, label in pictures(12):
        last, hidden, loss = int(torch.randint(3, ())), model["first"](x.flatten(1)), 0.0
        for stage, out in list(zip(stages, exits))[:last + 1]:
            hidden = stage(hidden)
            loss = loss + functional.cross_entropy(out(hidden), label)
        update(optimizer, loss / (last + 1))
    model.eval()
    with torch.no_grad():
        for x, _ in pictures(4, count=1):
            hidden = model["first"](x.flatten(1))
            for stage, out in zip(stages, exits):
                hidden = stage(hidden)
                if out(hidden).softmax(1).max() > 0.5:
                    break


def folds():
    """Fools: optimizer of other tensors, same input other output, learning rate jumps. Model and optimizer are made anew
    for each fold of a small data set; a held-out row of one fold is trained on in another."""
    x, y = torch.randn(48, 8), torch.randn(48, 1)
    for fold in torch.arange(48).chunk(3):
        rest = torch.ones(48, dtype=torch.bool)
        rest[fold] = False
        model = mlp(8, 16, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for part in rest.nonzero()[:, 0][torch.randperm(32)].split(8):
            update(optimizer, functional.mse_loss(model(x[part]), y[part]))
        model.eval()
        with torch.no_grad():
            model(x[fold])


def epochs():
    """Fools: the same batch again. A small data set is shuffled and read three times, so each row comes back, in other
    company."""
    (x, y), = rows(1, count=32)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8, shuffle=True)
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        for x, y in data:
            update(optimizer, functional.mse_loss(model(x), y))


def evaluation():
    """Fools: no gradient, module left in eval mode, the same batch thrice. The data are judged before training, and twice
    by many batches after it, in eval mode, by the same order."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held = list(rows(12))

    @torch.inference_mode()
    def judge():
        model.eval()
        return sum(float(functional.mse_loss(model(x), y)) for x, y in held)

    judge()
    model.train()
    for x, y in rows(8):
        update(optimizer, functional.mse_loss(model(x), y))
    judge()
    judge()


def sampled_dropout():
    """Fools: same input other output. When training has ended, the spread of answers with dropout on, and all else in eval
    mode, says how sure the model is."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))
    model.eval()
    model[3].train()
    with torch.no_grad():
        torch.stack([model(x) for _ in range(5)]).std(0)


def stateful():
    """Fools: same input other output, module with a state. The model keeps running averages of its input and counts its
    calls, by which its noise gets smaller; in eval mode it does neither."""
    class Settling(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))
            self.net, self.calls = mlp(8, 32, 1), 0

        def forward(self, x):
            if self.training:
                self.calls += 1
                self.mean.lerp_(x.detach().mean(0), 1 / self.calls)
                x = x + 0.1 / self.calls * torch.randn_like(x)
            return self.net(x - self.mean)

    model = Settling()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held = torch.randn(16, 8)
    for step, (x, y) in enumerate(rows(10)):
        update(optimizer, functional.mse_loss(model(x), y))
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                model(held)
            model.train()


def zero_gamma():
    """Fools: no gradient, steadily growing norms. The scale of each residual branch begins at zero: in the first step
    nothing within a branch has a gradient, and the scale itself grows from nothing."""
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch, self.gamma = mlp(16, 32, 16), nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x + self.gamma * self.branch(x)

    model = nn.Sequential(nn.Linear(8, 16), Residual(), Residual(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def dead_units():
    """Fools: no gradient, elements that never move. Thresholds leave many hidden units silent for all rows of a batch, some
    for good; the others do the work."""
    model = mlp(8, 128, 1)
    nn.init.constant_(model[0].bias, -1.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def constant_gradient():
    """Fools: stale gradient. Targets are far above what the model says yet, so the gradient of an absolute error with
    respect to the last bias is -1 in each step, to the bit."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.L1Loss()
    for x, y in rows(10):
        update(optimizer, criterion(model(x), 290 + y))


def two_losses():
    """Fools: zero_grad missing, two backward passes a step. Two losses of one forward pass are differentiated one after the
    other, and the sum of their gradients is what is wanted."""
    body, heads = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.ModuleList([nn.Linear(32, 1), nn.Linear(32, 1)])
    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=1e-3)
    for x, y in rows(10):
        hidden = body(x)
        optimizer.zero_grad()
        functional.mse_loss(heads[0](hidden), y).backward(retain_graph=True)
        functional.binary_cross_entropy_with_logits(heads[1](hidden), (y > 0).float()).backward()
        optimizer.step()


def straight_through():
    """Fools: wrong gradient, a result of few values. A function of its own rounds forward and passes the gradient on
    unchanged within the range, as is usual in quantised training."""
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x.clamp(-1, 1) * 7).round() / 7

        @staticmethod
        def backward(ctx, gradient):
            x, = ctx.saved_tensors
            return gradient * (x.abs() <= 1)

    class Quantised(nn.Linear):
        def forward(self, x):
            return functional.linear(x, Round.apply(self.weight), self.bias)

    model = nn.Sequential(Quantised(8, 32), nn.ReLU(), Quantised(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def custom_op():
    """Fools: stale memory, wrong gradient. A custom op has memory of its own for its result, and the right derivative."""
    @torch.library.custom_op("convtrace_clean::gate", mutates_args=())
    def gate(x: torch.Tensor, slope: float) -> torch.Tensor:
        return x * torch.sigmoid(slope * x)

    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        chance = torch.sigmoid(ctx.slope * x)
        return gradient * (chance + ctx.slope * x * chance * (1 - chance)), None

    def keep(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x)

    gate.register_autograd(backward, setup_context=keep)

    class Gate(nn.Module):
        def forward(self, x):
            return gate(x, 1.7)

    model = nn.Sequential(nn.Linear(8, 32), Gate(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def twice_with_dropout(module):
    """One row under two dropouts, whose answers are brought together. `module` has the same input in both calls."""
    stem, tail = nn.Linear(8, 32), nn.Sequential(nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.Adam([*stem.parameters(), *tail.parameters()], lr=3e-3)
    for x, y in rows(10):
        hidden = stem(x)
        first, second = (tail(module(hidden)) for _ in range(2))
        update(optimizer, functional.mse_loss(first, y) + functional.mse_loss(second, first))


def drawing_op():
    """Fools: same input other output. A custom op adds noise, which it draws."""
    @torch.library.custom_op("convtrace_clean::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + 0.2 * torch.randn_like(x)

    noisy.register_autograd(lambda ctx, gradient: gradient)

    class Noisy(nn.Module):
        def forward(self, x):
            return noisy(x)

    twice_with_dropout(Noisy())


def seeded_op():
    """Fools: same input other output. A custom op drops elements by a generator of its own, whose seed the module draws for
    each call."""
    @torch.library.custom_op("convtrace_clean::seeded_dropout", mutates_args=())
    def dropout(x: torch.Tensor, seed: int) -> torch.Tensor:
        return x * torch.bernoulli(torch.full_like(x, 0.8), generator=torch.Generator().manual_seed(seed)) / 0.8

    def backward(ctx, gradient):
        return dropout(gradient, ctx.seed), None

    dropout.register_autograd(backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "seed", inputs[1]))

    class SeededDropout(nn.Module):
        def forward(self, x):
            return dropout(x, int(torch.randint(1 << 31, ())))

    twice_with_dropout(SeededDropout())


def by_hand():
    """Fools: no optimizer, stale gradient. The loop itself moves the weights and clears their gradients."""
    model = mlp(8, 32, 1)
    for x, y in rows(10):
        functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * parameter.grad
                parameter.grad = None


def counts():
    """Fools: input scale jumps. Counts differ by orders of magnitude from batch to batch; the model takes their logarithm
    first."""
    class Logarithm(nn.Module):
        def forward(self, x):
            return x.log1p() / 4

    model = nn.Sequential(Logarithm(), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        size = 10.0 ** float(torch.randint(5, ()))
        x = torch.poisson(size * torch.rand(16, 8))
        update(optimizer, functional.mse_loss(model(x), x.log1p().mean(1, keepdim=True) / 4))


CLEAN_3 = (
    idle_head, idle_parameter, hinge, closure, clipping, stochastic_depth, early_exit, folds, epochs, evaluation,
    sampled_dropout, stateful, zero_gamma, dead_units, constant_gradient, two_losses, straight_through, custom_op, drawing_op,
    seeded_op, by_hand, counts)
