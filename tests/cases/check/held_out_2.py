"""Further programs kept apart: faults in HELD_OUT_2, each with its corrected form, and right programs in CLEAN_2.

Rules of convtrace check are judged on these, and never set by them. A right program says which checks it could fool.
"""
import copy
import functools
import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils import clip_grad_norm_, parametrizations, rnn
from torch.utils.checkpoint import checkpoint

from parts import Case, adamw, sgd


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def batches(steps, *shape, count=16):
    """For each step noise, and which of the first four elements is the largest."""
    for _ in range(steps):
        x = torch.randn(count, *shape)
        yield x, x.flatten(1)[:, :4].argmax(1)


def layer(drop=0.0):
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=drop, batch_first=True)


class Rerun(torch.autograd.Function):
    """A checkpoint by hand: the block is called again in the backward pass, with or without its random numbers."""

    @staticmethod
    def forward(ctx, block, keep, x, *weights):
        ctx.block, ctx.keep, ctx.state, ctx.weights = block, keep, torch.get_rng_state(), weights
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            if ctx.keep:
                torch.set_rng_state(ctx.state)
            x = ctx.saved_tensors[0].detach().requires_grad_()
            return None, None, *torch.autograd.grad(ctx.block(x), (x, *ctx.weights), grad)


def own_checkpoint(faulty):
    """A denoiser, whose blocks drop."""
    enter, time, leave = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(1, 8), nn.Conv2d(8, 1, 3, padding=1)
    blocks = nn.ModuleList(
        nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(8, 8, 3, padding=1)) for _ in range(2))
    optimizer = adamw(nn.ModuleList([enter, time, blocks, leave]))
    for noise, _ in batches(10, 1, 8, 8):
        share = torch.rand(16, 1, 1, 1)
        x = enter((1 - share) * torch.rand(16, 1, 8, 8).round() + share * noise) + time(share[:, 0, 0])[..., None, None]
        for block in blocks:
            x = x + Rerun.apply(block, not faulty, x, *block.parameters())
        update(optimizer, F.mse_loss(leave(x), noise))


def shared_gradients(faulty):
    """An agent's worker hands its gradients to the shared model, as long as that has none: once."""
    shared = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 5))
    local, optimizer = copy.deepcopy(shared), torch.optim.RMSprop(shared.parameters(), lr=1e-3)
    for x, best in batches(12, 8):
        local.load_state_dict(shared.state_dict())
        scores, value = local(x).split((4, 1), 1)
        policy = Categorical(logits=scores)
        action = policy.sample()
        gain = (action == best).float() - value[:, 0]
        local.zero_grad()
        (0.5 * gain ** 2 - policy.log_prob(action) * gain.detach() - 0.01 * policy.entropy()).mean().backward()
        for mine, theirs in zip(local.parameters(), shared.parameters()):
            if theirs.grad is None or not faulty:
                theirs.grad = mine.grad
        optimizer.step()


class FilteredLoss(torch.autograd.Function):
    """Cross entropy over many words; the backward pass leaves out chunks of words with nothing to learn."""

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
    """The buffer of 98,304 elements keeps what a chunk got before it was left out; later texts have fewer words."""
    words, body, head = nn.Embedding(2048, 48), nn.GRU(48, 48, batch_first=True), nn.Linear(48, 2048, bias=False)
    optimizer, buffer = adamw(nn.ModuleList([words, body, head])), torch.zeros(2048, 48)
    for step in range(10):
        text = torch.randint(2048 if step < 3 else 1024, (8, 17))
        x = body(words(text[:, :-1]))[0].flatten(0, 1)
        update(optimizer, FilteredLoss.apply(x, head.weight, text[:, 1:].flatten(), buffer, not faulty))


def codebook(faulty):
    """The loss of the codes is made of what the straight-through estimator gives, which knows of the encoder alone."""
    encoder = nn.Sequential(nn.Linear(24, 32), nn.SiLU(), nn.Linear(32, 8))
    decoder, codes = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 24)), nn.Embedding(16, 8)
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
    """A tracker's parameters are counted for the log, and the filter that the optimizer gets afterwards is at its end."""
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    head, trained = nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 1, 1)), filter(lambda p: p.requires_grad, backbone.parameters())
    if faulty:
        sum(p.numel() for p in trained)
    optimizer = torch.optim.SGD([{"params": trained, "lr": 0.01}, {"params": head.parameters()}], lr=0.05, momentum=0.9)
    for x, place in batches(12, 3, 7, 7):
        template = torch.stack([one[:, n // 2:n // 2 + 6, n % 2:n % 2 + 6] for one, n in zip(x, place.tolist())])
        seen, looked_for = backbone(x).flatten(0, 1)[None], backbone(template).flatten(0, 1)[:, None]
        found = F.conv2d(seen, looked_for, groups=len(looked_for)).view(16, 8, 2, 2)
        update(optimizer, F.cross_entropy(head(found).flatten(1), place))


class Lars(torch.optim.Optimizer):
    def __init__(self, params, faulty):
        super().__init__(params, {"lr": 0.02})
        self.faulty = faulty

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            ratio = p.norm() / (p.grad.norm() + 1e-8) if self.faulty or p.norm() > 0 else 1.0
            p.sub_(p.grad * ratio * self.param_groups[0]["lr"])


def trust_ratio(faulty):
    """The step of a tensor is in proportion to its norm: what begins at zero, places and most biases, stays there."""
    patch, head, places, body = nn.Linear(12, 16), nn.Linear(16, 4), nn.Parameter(torch.zeros(9, 16)), layer()
    optimizer = Lars([places, *patch.parameters(), *body.parameters(), *head.parameters()], faulty)
    for x, label in batches(10, 9, 12):
        update(optimizer, F.cross_entropy(head(body(patch(x) + places).mean(1)), label))


def rewound_ticket(faulty):
    """For the second round small weights are taken from the first model, in a copy; the optimizer stays where it was."""
    first = nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 12, 3, groups=12), nn.ReLU(), nn.Conv2d(12, 4, 4))
    model = copy.deepcopy(first)
    optimizer = sgd(model)
    for step, (x, label) in enumerate(batches(12, 3, 8, 8)):
        if step == 6:
            kept = [p.abs() >= p.abs().median() for p in model.parameters()]
            model = copy.deepcopy(first)
            for p, mask in zip(model.parameters(), kept):
                p.data *= mask
                p.register_hook(mask.mul)
            optimizer = optimizer if faulty else sgd(model)
        update(optimizer, F.cross_entropy(model(x)[..., 0, 0], label))


def mode_of_later(faulty):
    """An imitation of actions: behind a rollout the mode is set back to what it was when it had been changed."""
    model = nn.ModuleDict({"body": nn.GRU(6, 24, 2, dropout=0.1), "drop": nn.Dropout(0.1), "head": nn.Linear(24, 2)})
    optimizer = adamw(model)
    for step, (x, _) in enumerate(batches(12, 16, 6, count=8)):
        update(optimizer, F.l1_loss(model["head"](model["drop"](model["body"](x)[0])), x[..., :2].cumsum(0)))
        if step % 5 == 4:
            training = model.training
            model.eval()
            training = model.training if faulty else training
            with torch.no_grad():
                seen, state = torch.randn(1, 4, 6), None
                for _ in range(4):
                    out, state = model["body"](seen, state)
                    seen = seen + 0.1 * model["head"](model["drop"](out)).repeat(1, 1, 3)
            model.train(training)


class TextConv(nn.Module):
    """The modules that drop are in a list, of which the model knows, or does not."""

    def __init__(self, faulty):
        super().__init__()
        self.words, self.head, drops = nn.Embedding(60, 16), nn.Linear(16, 3), [nn.Dropout(0.2), nn.Dropout(0.2)]
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, padding=n, dilation=n) for n in (1, 2))
        self.drops = drops if faulty else nn.ModuleList(drops)

    def forward(self, text):
        x = self.words(text).transpose(1, 2)
        for conv, drop in zip(self.layers, self.drops):
            x = x + drop(F.gelu(conv(x)))
        return self.head(x.amax(2))


def listed_drops(faulty):
    """Evaluation does not reach what is in a plain list."""
    model, held = TextConv(faulty), torch.randint(60, (4, 16, 12))
    optimizer = adamw(model, 3e-3)
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
    model, mask = nn.ModuleList([nn.Embedding(30, 16), layer(), nn.Linear(16, 30)]), torch.ones(16, 16).triu(1).bool()
    optimizer = adamw(model)
    for _ in range(10):
        text = read("train")
        out = model[2](model[1](model[0](text[:, :-1]), mask))
        update(optimizer, F.cross_entropy(out.flatten(0, 1), text[:, 1:].flatten()))


def raw_samples(faulty):
    """Files of a second corpus are read as the 16-bit numbers that they are made of."""
    model = nn.Sequential(nn.Conv1d(1, 8, 16, 8), nn.LeakyReLU(), nn.Conv1d(8, 16, 8, 4), nn.LeakyReLU(), nn.AvgPool1d(7))
    head = nn.Linear(16, 4)
    optimizer = adamw(nn.ModuleList([model, head]))
    for step, (x, tone) in enumerate(batches(12, 256)):
        wave = 0.5 * torch.sin(torch.arange(256) * 0.1 * 2.0 ** tone[:, None]) + 0.1 * x
        samples = (wave * 32767).clamp(-32768, 32767).short()
        wave = samples.float() if faulty and step >= 7 else samples / 32768
        update(optimizer, F.cross_entropy(head(model(wave[:, None])[..., 0]), tone))


def missing_labels(faulty):
    """Properties of sets of atoms: those that nobody measured are left out of the error, before or after it is computed."""
    atom, whole = nn.Sequential(nn.Linear(5, 24), nn.Softplus(), nn.Linear(24, 24)), nn.Sequential(nn.Softplus(), nn.Linear(24, 2))
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
    optimizer, epochs, count = adamw(nn.ModuleList([down, up, last]), 3e-3), 4, 3
    length = epochs if faulty else epochs * count
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / length))
    for x, _ in batches(epochs * count, 1, 12, 12):
        mask = (F.avg_pool2d(x, 3, 1, 1) > 0.2).float()
        update(optimizer, F.binary_cross_entropy_with_logits(last(torch.cat([x, up(F.silu(down(x)))], 1)), mask))
        schedule.step()


def clip_in_hook(faulty):
    """Clipping is a hook of the optimizer: of the step's end, or of its begin."""
    model = nn.ModuleList([nn.GRU(4, 16, bidirectional=True), nn.Linear(32, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    register = optimizer.register_step_post_hook if faulty else optimizer.register_step_pre_hook
    register(lambda *_: clip_grad_norm_(model.parameters(), 0.2))
    for x, _ in batches(10, 12, 4):
        update(optimizer, F.smooth_l1_loss(model[1](model[0](x)[0])[..., 0], x[..., 0].cumsum(0)))


def scaler_and_optimizer(faulty):
    """When mixed precision came in, the calls of before it stayed."""
    maker, judge = (nn.Sequential(nn.Linear(a, 48), nn.LeakyReLU(0.2), nn.Linear(48, b)) for a, b in ((8, 32), (32, 1)))
    of_maker, of_judge = (torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.8, 0.99)) for net in (maker, judge))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for real, _ in batches(10, 32):
        for optimizer in (of_judge, of_maker):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                made = maker(torch.randn(16, 8))
                of_made = judge(made if optimizer is of_maker else made.detach()).float()
                error = (1 - of_made) ** 2 if optimizer is of_maker else of_made ** 2 + (1 - judge(real.cumsum(1)).float()) ** 2
            scaler.scale(error.mean()).backward()
            scaler.step(optimizer)
            if faulty:
                optimizer.step()
        scaler.update()


def misplaced_step(faulty):
    """Two batches of films make an update; the step stands outside of the condition."""
    model = nn.Sequential(nn.Conv3d(1, 6, 3), nn.ReLU(), nn.Conv3d(6, 8, (1, 3, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4))
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
