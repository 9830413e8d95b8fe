"""Further programs that judge the rules of convtrace check and never set them: faults, and right ones that could fool it."""
import copy
import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, parametrizations, rnn, vector_to_parameters
from torch.utils.checkpoint import checkpoint

from parts import Case, adamw, fit, sgd

layer = functools.partial(nn.TransformerEncoderLayer, 16, 2, 32, batch_first=True)


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def batches(steps, *shape, count=16):
    """Yields for each step noise, and the position of the largest of its first four elements."""
    for _ in range(steps):
        x = torch.randn(count, *shape)
        yield x, x.flatten(1)[:, :4].argmax(1)


def small(inputs=8, outputs=4):
    return nn.Sequential(nn.Linear(inputs, 24), nn.Tanh(), nn.Linear(24, outputs))


class Rerun(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, keep, x, *weights):
        ctx.block, ctx.keep, ctx.state, ctx.weights = block, keep, torch.get_rng_state(), weights
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state if ctx.keep else torch.get_rng_state())
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return None, None, *torch.autograd.grad(ctx.block(x), (x, *ctx.weights), grad)


def own_checkpoint(faulty):
    """A denoiser with a checkpoint by hand: blocks, which drop, are called again with or without their random numbers."""
    enter, time, leave = nn.Conv2d(1, 8, 3, 1, 1), nn.Linear(1, 8), nn.Conv2d(8, 1, 3, 1, 1)
    blocks = nn.ModuleList(nn.Sequential(nn.GELU(), nn.Dropout(0.1), nn.Conv2d(8, 8, 3, 1, 1)) for _ in range(2))
    optimizer = adamw(nn.ModuleList([enter, time, blocks, leave]))
    for noise, _ in batches(10, 1, 8, 8):
        share = torch.rand(16, 1, 1, 1)
        x = enter((1 - share) * torch.rand(16, 1, 8, 8).round() + share * noise) + time(share[:, 0, 0])[..., None, None]
        for block in blocks:
            x = x + Rerun.apply(block, not faulty, x, *block.parameters())
        update(optimizer, F.mse_loss(leave(x), noise))


def shared_gradients(faulty):
    """An agent's worker hands its gradients to the shared model, as long as that has none: once."""
    shared, local = small(outputs=5), small(outputs=5)
    optimizer = torch.optim.RMSprop(shared.parameters(), lr=1e-3)
    for x, best in batches(12, 8):
        local.load_state_dict(shared.state_dict())
        scores, value = local(x).split((4, 1), 1)
        action = torch.distributions.Categorical(logits=scores).sample()
        gain = (action == best).float() - value[:, 0]
        local.zero_grad()
        (0.5 * gain ** 2 + F.cross_entropy(scores, action, reduction="none") * gain.detach()).mean().backward()
        for mine, theirs in zip(local.parameters(), shared.parameters()):
            if theirs.grad is None or not faulty:
                theirs.grad = mine.grad
        optimizer.step()


class FilteredLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, label, buffer, clear):
        ctx.save_for_backward(x, weight, label)
        ctx.buffer, ctx.clear = buffer, clear
        return F.cross_entropy(x @ weight.t(), label)

    @staticmethod
    def backward(ctx, grad):
        x, weight, label = ctx.saved_tensors
        error, of_x = ((x @ weight.t()).softmax(1) - F.one_hot(label, len(weight))) * grad, torch.zeros_like(x)
        if ctx.clear:
            ctx.buffer.zero_()
        for rows in torch.arange(len(weight)).chunk(4):
            if error[:, rows].abs().max() > 2 ** -8:
                ctx.buffer[rows] = error[:, rows].t() @ x / len(x)
                of_x += error[:, rows] @ weight[rows] / len(x)
        return of_x, ctx.buffer.clone(), None, None, None


def filtered_words(faulty):
    """A buffer of 98,304 elements gets a gradient; chunks of it with nothing to learn are left out, and keep what they had."""
    words, body, head = nn.Embedding(2048, 48), nn.GRU(48, 48, batch_first=True), nn.Linear(48, 2048, bias=False)
    optimizer, buffer = adamw(nn.ModuleList([words, body, head])), torch.zeros(2048, 48)
    for step in range(10):
        text = torch.randint(2048 if step < 3 else 1024, (8, 17))
        x = body(words(text[:, :-1]))[0].flatten(0, 1)
        update(optimizer, FilteredLoss.apply(x, head.weight, text[:, 1:].flatten(), buffer, not faulty))


def codebook(faulty):
    """The loss of the codes is made of what the straight-through estimator gives, which knows of the encoder alone."""
    encoder, decoder, codes = small(24, 8), small(8, 24), nn.Embedding(16, 8)
    optimizer = torch.optim.Adam(nn.ModuleList([encoder, decoder, codes]).parameters(), lr=2e-3)
    for x, _ in batches(12, 24):
        z = encoder(x)
        near = codes(torch.cdist(z, codes.weight).argmin(1))
        through = z + (near - z).detach()
        loss = F.mse_loss(through if faulty else near, z.detach()) + 0.25 * F.mse_loss(z, near.detach())
        update(optimizer, F.mse_loss(decoder(through), x) + loss)


def positives_of_bank(faulty):
    """Pictures look for their captions in a bank of all: those of this batch should be of now, with their gradients."""
    picture, caption = nn.Linear(50, 16), nn.Sequential(nn.EmbeddingBag(50, 16), nn.Tanh(), nn.Linear(16, 16))
    optimizer, captions, bank = adamw(nn.ModuleList([picture, caption])), torch.randint(50, (64, 6)), torch.randn(64, 16)
    for _ in range(10):
        number = torch.randperm(64)[:16]
        seen = F.one_hot(captions[number], 50).sum(1) + torch.randn(16, 50)
        text = F.normalize(caption(captions[number]), dim=1)
        bank[number] = text.detach()
        keys = bank.clone() if faulty else bank.index_copy(0, number, text)
        update(optimizer, F.cross_entropy(F.normalize(picture(seen), dim=1) @ keys.t() / 0.2, number))


def consumed_filter(faulty):
    """A tracker's parameters are counted for the log, and the generator that the optimizer gets then is at its end."""
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    head = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 1, bias=False))
    trained = (p for p in backbone.parameters() if p.requires_grad)
    sum(p.numel() for p in (trained if faulty else backbone.parameters()))
    optimizer = torch.optim.SGD([{"params": trained, "lr": 0.01}, {"params": head.parameters()}], lr=0.05, momentum=0.9)
    for x, place in batches(12, 3, 7, 7):
        template = torch.stack([one[:, n // 2:n // 2 + 6, n % 2:n % 2 + 6] for one, n in zip(x, place.tolist())])
        seen, looked_for = backbone(x).flatten(0, 1)[None], backbone(template).flatten(0, 1)[:, None]
        found = F.conv2d(seen, looked_for, groups=len(looked_for)).view(16, 8, 2, 2)
        update(optimizer, F.cross_entropy(head(found).flatten(1), place))


class Lars(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            ratio = p.norm() / (p.grad.norm() + 1e-8) if self.defaults["faulty"] or p.norm() > 0 else 1.0
            p.sub_(p.grad * ratio * self.param_groups[0]["lr"])


def trust_ratio(faulty):
    """The step of a tensor is in proportion to its norm: what begins at zero, places and most biases, stays there."""
    patch, head, places, body = nn.Linear(12, 16), nn.Linear(16, 4), nn.Parameter(torch.zeros(9, 16)), layer(dropout=0.0)
    optimizer = Lars([places, *patch.parameters(), *body.parameters(), *head.parameters()], {"lr": 0.02, "faulty": faulty})
    for x, label in batches(10, 9, 12):
        update(optimizer, F.cross_entropy(head(body(patch(x) + places).mean(1)), label))


def rewound_ticket(faulty):
    """The second round trains a pruned copy of the first model; the optimizer still has the old model's parameters."""
    first = nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 12, 3, groups=12), nn.ReLU(), nn.Conv2d(12, 4, 4))
    model = copy.deepcopy(first)
    optimizer = sgd(model)
    for step, (x, label) in enumerate(batches(12, 3, 8, 8)):
        if step == 6:
            kept, model = [p.abs() >= p.abs().median() for p in model.parameters()], copy.deepcopy(first)
            for p, mask in zip(model.parameters(), kept):
                p.data *= mask
                p.register_hook(mask.mul)
            optimizer = optimizer if faulty else sgd(model)
        update(optimizer, F.cross_entropy(model(x)[..., 0, 0], label))


def mode_of_later(faulty):
    """An imitation of actions: behind a trial the mode is set to what it was: before it, or in it."""
    model = nn.ModuleDict({"body": nn.GRU(6, 24, 2, dropout=0.1), "drop": nn.Dropout(0.1), "head": nn.Linear(24, 6)})
    optimizer = adamw(model)
    for step, (x, _) in enumerate(batches(12, 16, 6, count=8)):
        update(optimizer, F.l1_loss(model["head"](model["drop"](model["body"](x)[0])), x.cumsum(0)))
        if step % 5 == 4:
            before = model.training
            model.eval()
            with torch.no_grad():
                for seen in torch.randn(4, 16, 2, 6):
                    model["head"](model["drop"](model["body"](seen)[0]))
            model.train(model.training if faulty else before)


class Dropped(nn.Module):
    def __init__(self, layer, faulty):
        super().__init__()
        self.layer, drops = layer, [nn.Dropout(0.2)]
        self.drops = drops if faulty else nn.ModuleList(drops)

    def forward(self, x):
        return x + self.drops[0](F.gelu(self.layer(x)))


def listed_drops(faulty):
    """The dropout is in a plain list, where eval() does not reach it."""
    model = nn.Sequential(nn.Embedding(60, 8), Dropped(nn.Conv1d(12, 12, 3, 1, 1), faulty), nn.Flatten(), nn.Linear(96, 3))
    optimizer, held = adamw(model, 3e-3), torch.randint(60, (4, 16, 12))
    for step, text in enumerate(torch.randint(60, (12, 16, 12))):
        update(optimizer, F.cross_entropy(model(text), text[:, 0] % 3))
        if step % 4 == 3:
            model.eval()
            with torch.no_grad():
                sum((model(text).argmax(1) == text[:, 0] % 3).float().mean().item() for text in held)
            model.train()


def cached_batches(faulty):
    """The function that reads a batch of text got a cache, so that the file is not opened each time."""
    def batch(split):
        low, high = (0, 1800) if split == "train" else (1800, 2000)
        return torch.stack([file[start:start + 17] for start in torch.randint(low, high - 17, (12,)).tolist()])

    file, read = torch.randint(30, (2000,)), functools.cache(batch) if faulty else batch
    model = nn.ModuleList([nn.Embedding(30, 16), layer(dropout=0.0), nn.Linear(16, 30)])
    optimizer, mask = adamw(model), torch.ones(16, 16).triu(1).bool()
    for _ in range(10):
        text = read("train")
        update(optimizer, F.cross_entropy(model[2](model[1](model[0](text[:, :-1]), mask)).mT, text[:, 1:]))


def raw_samples(faulty):
    """Files of a second corpus are read as the 16-bit numbers that they are made of."""
    model = nn.Sequential(nn.Conv1d(1, 8, 16, 8), nn.LeakyReLU(), nn.Conv1d(8, 16, 8, 4), nn.LeakyReLU(), nn.Conv1d(16, 4, 6))
    optimizer = adamw(model)
    for step, (x, tone) in enumerate(batches(12, 256)):
        samples = ((0.5 * torch.sin(torch.arange(256) * 0.1 * 2.0 ** tone[:, None]) + 0.05 * x) * 32767).short()
        wave = samples.float() if faulty and step >= 7 else samples / 32768
        update(optimizer, F.cross_entropy(model(wave[:, None])[..., 0], tone))


def missing_labels(faulty):
    """Properties of sets of atoms: those that nobody measured are left out of the error, before or after it is computed."""
    atom, whole = small(5, 24), nn.Sequential(nn.Softplus(), nn.Linear(24, 2))
    optimizer = torch.optim.Adam([*atom.parameters(), *whole.parameters()], lr=1e-3)
    for step, (x, _) in enumerate(batches(12, 7, 5)):
        label = torch.stack([x.sum((1, 2)), x.amax((1, 2))], 1)
        if step >= 6:
            label[torch.rand(16, 2) < 0.2] = torch.nan
        out, known = whole(atom(x).mean(1)), ~label.isnan()
        update(optimizer, ((out - label).square()[known] if faulty else (out[known] - label[known]).square()).mean())


def horizon_of_epochs(faulty):
    """The schedule goes on with each batch, and is told the number of epochs as its length."""
    down, up, last = nn.Conv2d(1, 8, 4, 2, 1), nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.Conv2d(9, 1, 1)
    optimizer, epochs = adamw(nn.ModuleList([down, up, last]), 3e-3), 4
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, 1 - step / (epochs if faulty else epochs * 3)))
    for x, _ in batches(epochs * 3, 1, 12, 12):
        mask = (F.avg_pool2d(x, 3, 1, 1) > 0.2).float()
        update(optimizer, F.binary_cross_entropy_with_logits(last(torch.cat([x, up(F.silu(down(x)))], 1)), mask))
        schedule.step()


def clip_in_hook(faulty):
    """Clipping is a hook of the optimizer: of the step's end, or of its begin."""
    def clip(*_):
        clip_grad_norm_(model.parameters(), 0.2)

    model = nn.ModuleList([nn.GRU(4, 16, bidirectional=True), nn.Linear(32, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    (optimizer.register_step_post_hook if faulty else optimizer.register_step_pre_hook)(clip)
    for x, _ in batches(10, 12, 4):
        update(optimizer, F.smooth_l1_loss(model[1](model[0](x)[0])[..., 0], x[..., 0].cumsum(0)))


def scaler_and_optimizer(faulty):
    """The optimizer's own step was left in place when mixed precision was added, so that each step is made twice."""
    maker, judge = (nn.Sequential(nn.Linear(a, 48), nn.LeakyReLU(0.2), nn.Linear(48, b)) for a, b in ((8, 32), (32, 1)))
    of_maker, of_judge = (torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.8, 0.99)) for net in (maker, judge))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for real, _ in batches(10, 32):
        for optimizer in (of_judge, of_maker):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                made = maker(torch.randn(16, 8))
                errors = (judge(made) - 1,) if optimizer is of_maker else (judge(made.detach()), judge(real.cumsum(1)) - 1)
            scaler.scale(sum(error.float().square().mean() for error in errors)).backward()
            scaler.step(optimizer)
            if faulty:
                optimizer.step()
        scaler.update()


def misplaced_step(faulty):
    """Two batches of films make an update; the step stands outside of the condition."""
    model = nn.Sequential(nn.Conv3d(1, 6, 3), nn.ReLU(), nn.Conv3d(6, 8, (1, 3, 3)), nn.Flatten(), nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for number, (x, label) in enumerate(batches(20, 1, 4, 8, 6)):
        (F.cross_entropy(model(x), label) / 2).backward()
        if faulty or number % 2 == 1:
            optimizer.step()
        if number % 2 == 1:
            optimizer.zero_grad()


HELD_OUT_2 = {
    "own-checkpoint": Case("not-repeatable", "guided-diffusion#167", own_checkpoint),
    "shared-gradients": Case("stale-gradient", "pytorch-a3c#20, gdrl#25", shared_gradients),
    "filtered-words": Case("stale-gradient", "tt-mlir#9220, FBGEMM#5754, of a buffer that is used again", filtered_words),
    "codebook": Case("no-gradient", "RQ-VAE-Recommender#24", codebook),
    "positives-of-bank": Case("no-gradient", "Text2Light#10, CMC#13, of a tower that should learn", positives_of_bank),
    "consumed-filter": Case("no-motion", "SiamCAR#18", consumed_filter),
    "trust-ratio": Case("no-motion", "pytorch-lamb#6, SimCLR#27", trust_ratio),
    "rewound-ticket": Case("optimizer-of-others", "skorch#317, between two rounds", rewound_ticket),
    "mode-of-later": Case("mode", "lerobot#3668", mode_of_later),
    "listed-drops": Case("mode", "detectorch#4, pytorch#38639", listed_drops),
    "cached-batches": Case("same-batch", "gluonts#3059, of training", cached_batches),
    "raw-samples": Case("input-scale", "openWakeWord#295, Dual-Path-RNN-Pytorch#16", raw_samples),
    "missing-labels": Case("nan", "pytorch#121416", missing_labels),
    "horizon-of-epochs": Case("learning-rate", "villa#1495, open-instruct#646", horizon_of_epochs),
    "clip-in-hook": Case("clip-after-step", "made up", clip_in_hook),
    "scaler-and-optimizer": Case("two-steps", "Applio#860", scaler_and_optimizer),
    "misplaced-step": Case("gradients-add-up", "ECO-pytorch#1", misplaced_step),
}


def dropped_edges():
    """Fools: the same input. Nodes of one graph are known in full in each step; links and the nodes of the loss are drawn."""
    links, first, second = torch.rand(40, 40) < 0.1, nn.Linear(8, 16), nn.Linear(16, 4)
    optimizer, (nodes, label) = adamw(nn.ModuleList([first, second]), 1e-2), *batches(1, 8, count=40)
    for _ in range(12):
        near = (links & (torch.rand(40, 40) < 0.8)).float() + torch.eye(40)
        near, seeds = near / near.sum(1, keepdim=True), torch.randperm(40)[:16]
        update(optimizer, F.cross_entropy((near @ second(F.relu(near @ first(nodes))))[seeds], label[seeds]))


def agent_in_eval():
    """Fools: mode. An agent has dropout off all along, by its rate, so that actions and their probabilities are of one policy."""
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.0), nn.Linear(24, 4)).eval()
    optimizer, mean = adamw(model), 0.0
    for x, best in batches(12, 8):
        action = torch.distributions.Categorical(logits=model(x)).sample()
        gain = (action == best).float()
        update(optimizer, F.cross_entropy(model(x), action, reduction="none") @ (gain - mean) / 16)
        mean += 0.1 * (gain.mean() - mean)


def two_views():
    """Fools: no gradient. Each view is to guess the other, whose gradient is stopped."""
    body, guess = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 16)), small(16, 16)
    optimizer = sgd(nn.ModuleList([body, guess]))
    for x, _ in batches(10, 3, 8, 8):
        views = body(x + 0.1 * torch.randn_like(x)), body(x.flip(3))
        update(optimizer, -sum(F.cosine_similarity(guess(a), b.detach()).mean() for a, b in (views, views[::-1])))


def mutual_teachers():
    """Fools: stale gradient, the same input twice, two optimizers. Two students teach each other."""
    students = [(net, sgd(net)) for net in (small(), small())]
    for x, label in batches(10, 8):
        for (net, optimizer), (other, _) in (students, students[::-1]):
            out, taught = net(x).log_softmax(1), other(x).detach().softmax(1)
            update(optimizer, F.nll_loss(out, label) + F.kl_div(out, taught, reduction="batchmean"))


def centred_gradients():
    """Fools: stale gradient, gradients that are changed. A hook takes the mean of each row away from the gradient."""
    model = small()
    model[0].weight.register_hook(lambda grad: grad - grad.mean(1, keepdim=True))
    fit(model, sgd(model), batches(10, 8))


def growing_pictures():
    """Fools: gradients add up, input scale. Pictures grow, so parts of a batch get fewer and its gradients are summed."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    optimizer = adamw(model)
    for parts in (1, 1, 1, 1, 2, 2, 2, 2, 4, 4):
        for x, label in batches(parts, 1, 8 * parts, 8 * parts, count=16 // parts):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x).float(), label) / parts
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def rates_of_groups():
    """Fools: learning rate, no motion. The first layer has a rate of zero for four steps, and its full rate afterwards."""
    model = small()
    optimizer = torch.optim.SGD([{"params": part.parameters()} for part in (model[0], model[2])], lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step: float(step >= 4), lambda step: 0.9 ** step])
    for x, label in batches(12, 8):
        update(optimizer, F.cross_entropy(model(x), label))
        schedule.step()


def recomputed_attention():
    """Fools: same input other output. Layers with dropout are computed again, with the random numbers of the first time."""
    model = nn.ModuleList([nn.Linear(8, 16), layer(dropout=0.1), layer(dropout=0.1), nn.Linear(16, 4)])
    optimizer = adamw(model)
    for x, label in batches(10, 6, 8):
        x = checkpoint(model[2], checkpoint(model[1], model[0](x), use_reentrant=False), use_reentrant=False)
        update(optimizer, F.cross_entropy(model[3](x.mean(1)), label))


def orthogonal_cell():
    """Fools: optimizer of others, repeated calls. A recurrent cell's weight is computed of another, for each call anew."""
    cell, enter, head = parametrizations.orthogonal(nn.Linear(16, 16)), nn.Linear(4, 16), nn.Linear(16, 1)
    optimizer = adamw(nn.ModuleList([cell, enter, head]))
    for x, _ in batches(10, 8, 4):
        state = torch.zeros(16, 16)
        for moment in x.unbind(1):
            state = torch.tanh(cell(state) + enter(moment))
        update(optimizer, F.mse_loss(head(state)[:, 0], x[..., 0].mean(1)))


def resumed():
    """Fools: same batch, optimizer of others. After a crash new objects go on from what was saved, two batches earlier."""
    data, model = list(batches(10, 8)), small()
    optimizer = adamw(model)
    fit(model, optimizer, data[:4])
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    fit(model, optimizer, data[4:6])
    model = small()
    optimizer = adamw(model)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    fit(model, optimizer, data[4:])


def liked_items():
    """Fools: no gradient, no motion. Sparse gradients reach few rows of large tables; many rows are never drawn."""
    users, items = (nn.Embedding(count, 8, sparse=True) for count in (500, 2000))
    optimizer = torch.optim.SGD([users.weight, items.weight], lr=0.5)
    for _ in range(12):
        user, (liked, other) = users(torch.randint(500, (32,))), items(torch.randint(2000, (2, 32)))
        update(optimizer, -F.logsigmoid((user * (liked - other)).sum(1)).mean())


def master_weights():
    """Fools: optimizer of others, moves without gradient. The optimizer has a vector of all weights in more bits."""
    model = small().bfloat16()
    master = parameters_to_vector(model.parameters()).detach().float()
    optimizer = torch.optim.Adam([master], lr=3e-3)
    for x, label in batches(10, 8):
        model.zero_grad()
        F.cross_entropy(model(x.bfloat16()).float(), label).backward()
        master.grad = torch.cat([p.grad.flatten() for p in model.parameters()]).float()
        optimizer.step()
        vector_to_parameters(master.bfloat16(), model.parameters())


def longer_sequences():
    """Fools: padding, input scale. A curriculum: sequences get longer, and what is behind their end is packed away."""
    body, head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 4)
    optimizer = adamw(nn.ModuleList([body, head]))
    for step, (x, label) in enumerate(batches(12, 16, 4)):
        packed = rnn.pack_padded_sequence(x, torch.randint(2, 4 + step, (16,)), batch_first=True, enforce_sorted=False)
        update(optimizer, F.cross_entropy(head(body(packed)[1][0]), label))


def equilibrium():
    """Fools: no gradient, mode, repeated calls. A cell is called without gradients until little changes, then once with."""
    cell, head = parametrizations.spectral_norm(nn.Linear(24, 16)), nn.Linear(16, 4)
    optimizer = adamw(nn.ModuleList([cell, head]))
    for x, label in batches(10, 8):
        state = torch.zeros(16, 16)
        for number in range(8):
            with torch.set_grad_enabled(number == 7):
                state = torch.tanh(0.5 * cell(torch.cat([state, x], 1)))
        update(optimizer, F.cross_entropy(head(state), label))


def reptile():
    """Fools: moves without gradient, optimizer of others. Copies learn a task each; the model goes half of their way."""
    model = small(1, 1)
    for _ in range(5):
        inner, phase = copy.deepcopy(model), 6 * torch.rand(())
        fit(inner, sgd(inner), [(x, torch.sin(x + phase)) for x, _ in batches(2, 1)], F.mse_loss)
        for p, q in zip(model.parameters(), inner.parameters()):
            p.data.lerp_(q.data, 0.5)


def swapped_average():
    """Fools: moves without gradient, mode. For each evaluation the averaged weights take the place of those that learn."""
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer, average, (held, _) = sgd(model), copy.deepcopy(model.state_dict()), next(batches(1, 8))
    for step, (x, label) in enumerate(batches(12, 8)):
        update(optimizer, F.cross_entropy(model(x), label))
        average = {key: value.lerp(model.state_dict()[key], 0.2) for key, value in average.items()}
        if step % 4 == 3:
            kept = copy.deepcopy(model.state_dict())
            model.eval().load_state_dict(average)
            with torch.no_grad():
                model(held)
            model.train().load_state_dict(kept)


CLEAN_HELD_OUT = {program.__name__: program for program in (
    dropped_edges, agent_in_eval, two_views, mutual_teachers, centred_gradients, growing_pictures, rates_of_groups, resumed,
    recomputed_attention, orthogonal_cell, liked_items, master_weights, longer_sequences, equilibrium, reptile, swapped_average)}
