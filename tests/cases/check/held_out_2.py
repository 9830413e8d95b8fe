"""Further programs kept apart: faults in HELD_OUT_2, each with its corrected form, and right programs in CLEAN_2.

Rules of convtrace check are judged on these, and never set by them. A right program says which checks it could fool.
"""
import copy
import functools
import io
import math

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


class Rerun(torch.autograd.Function):
    """A checkpoint by hand: the block is called again in the backward pass, with or without its random numbers."""

    @staticmethod
    def forward(ctx, block, keep, x, *weights):
        ctx.block, ctx.weights, ctx.state = block, weights, torch.get_rng_state() if keep else None
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.state is not None):
            if ctx.state is not None:
                torch.set_rng_state(ctx.state)
            y = ctx.block(x)
        return None, None, *torch.autograd.grad(y, (x, *ctx.weights), grad)


def own_checkpoint(faulty):
    """A denoiser of pictures, whose blocks drop."""
    model = nn.ModuleDict({
        "enter": nn.Conv2d(1, 8, 3, padding=1), "time": nn.Linear(1, 8), "leave": nn.Conv2d(8, 1, 3, padding=1),
        "blocks": nn.ModuleList(nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(8, 8, 3, padding=1))
                                for _ in range(2))})
    optimizer = adamw(model)
    for _ in range(10):
        clean, noise, time = torch.rand(8, 1, 8, 8).round(), torch.randn(8, 1, 8, 8), torch.rand(8, 1)
        share = time[..., None, None]
        x = model["enter"]((1 - share) * clean + share * noise) + model["time"](time)[..., None, None]
        for block in model["blocks"]:
            x = x + Rerun.apply(block, not faulty, x, *block.parameters())
        update(optimizer, F.mse_loss(model["leave"](x), noise))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.actor, self.critic = nn.LSTMCell(8, 24), nn.Linear(24, 4), nn.Linear(24, 1)

    def forward(self, x, state):
        state = self.cell(x, state)
        return Categorical(logits=self.actor(state[0])), self.critic(state[0])[:, 0], state


def shared_gradients(faulty):
    """A worker hands its gradients to the shared model, as long as that has none: once."""
    shared, local = ActorCritic(), ActorCritic()
    optimizer = torch.optim.RMSprop(shared.parameters(), lr=1e-3)
    for _ in range(12):
        local.load_state_dict(shared.state_dict())
        state, loss = None, 0.0
        for x in torch.randn(5, 8, 8):
            policy, value, state = local(x, state)
            action = policy.sample()
            gain = (action == x[:, :4].argmax(1)).float() - value
            loss = loss + (0.5 * gain ** 2 - policy.log_prob(action) * gain.detach() - 0.01 * policy.entropy()).mean()
        local.zero_grad()
        loss.backward()
        for mine, theirs in zip(local.parameters(), shared.parameters()):
            if theirs.grad is None or not faulty:
                theirs.grad = mine.grad
        optimizer.step()


class FilteredLoss(torch.autograd.Function):
    """Cross entropy over many words; the backward pass leaves out chunks of words with nothing to learn."""

    @staticmethod
    def forward(ctx, x, weight, label, buffer, faulty):
        ctx.save_for_backward(x, weight, label)
        ctx.buffer, ctx.faulty = buffer, faulty
        return F.cross_entropy(x @ weight.t(), label)

    @staticmethod
    def backward(ctx, grad):
        x, weight, label = ctx.saved_tensors
        error, of_x = (x @ weight.t()).softmax(1) - F.one_hot(label, len(weight)), torch.zeros_like(x)
        if not ctx.faulty:
            ctx.buffer.zero_()
        for rows in (slice(first, first + 512) for first in range(0, len(weight), 512)):
            if error[:, rows].abs().max() > 2 ** -8:
                ctx.buffer[rows] = error[:, rows].t() @ x * (grad / len(x))
                of_x += error[:, rows] @ weight[rows] * (grad / len(x))
        return of_x, ctx.buffer.clone(), None, None, None


def filtered_words(faulty):
    """The buffer of 98,304 elements keeps what a chunk got before it was left out; later texts have fewer words."""
    words, body, head = nn.Embedding(2048, 48), nn.GRU(48, 48, batch_first=True), nn.Linear(48, 2048, bias=False)
    optimizer, buffer = adamw(nn.ModuleList([words, body, head])), torch.zeros(2048, 48)
    for step in range(10):
        text = torch.randint(2048 if step < 3 else 1024, (8, 17))
        x = body(words(text[:, :-1]))[0].flatten(0, 1)
        update(optimizer, FilteredLoss.apply(x, head.weight, text[:, 1:].flatten(), buffer, faulty))


def codebook(faulty):
    """The loss of the codes is made of what the straight-through estimator gives, which knows of the encoder alone."""
    encoder = nn.Sequential(nn.Linear(24, 32), nn.SiLU(), nn.Linear(32, 8))
    decoder, codes = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 24)), nn.Embedding(16, 8)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *codes.parameters()], lr=2e-3)
    for _ in range(12):
        x = torch.randn(32, 4) @ torch.randn(4, 24)
        z = encoder(x)
        nearest = codes(torch.cdist(z, codes.weight).argmin(1))
        through = z + (nearest - z).detach()
        loss = F.mse_loss(through if faulty else nearest, z.detach()) + 0.25 * F.mse_loss(z, nearest.detach())
        update(optimizer, F.mse_loss(decoder(through), x) + loss)


class TwoTowers(nn.Module):
    """Pictures look for their captions among all of a bank: those of this batch are of now, the others of before."""

    def __init__(self, faulty):
        super().__init__()
        self.picture = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 16))
        self.caption, self.scale = nn.Sequential(nn.EmbeddingBag(50, 16), nn.Tanh(), nn.Linear(16, 16)), nn.Parameter(torch.ones(()))
        self.register_buffer("bank", F.normalize(torch.randn(64, 16), dim=1))
        self.faulty = faulty

    def forward(self, picture, caption, number):
        caption = F.normalize(self.caption(caption), dim=1)
        self.bank[number] = caption.detach()
        keys = self.bank.clone()
        if not self.faulty:
            keys[number] = caption
        return F.normalize(self.picture(picture), dim=1) @ keys.t() * self.scale.exp()


def positives_of_bank(faulty):
    model, captions = TwoTowers(faulty), torch.randint(50, (64, 6))
    optimizer = adamw(model)
    for _ in range(10):
        number = torch.randperm(64)[:16]
        picture = F.one_hot(captions[number], 50).sum(1)[:, :48].view(-1, 3, 4, 4).repeat(1, 1, 2, 2)[:, :, :7, :7].float()
        update(optimizer, F.cross_entropy(model(picture + torch.randn_like(picture), captions[number], number), number))


class Tracker(nn.Module):
    """Correlates features of a template with those of a picture that has it somewhere."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.head = nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 1, 1))

    def forward(self, template, picture):
        template, picture = self.backbone(template), self.backbone(picture)
        found = F.conv2d(picture.flatten(0, 1)[None], template.flatten(0, 1)[:, None], groups=8 * len(picture))
        return self.head(found.view(len(picture), 8, *found.shape[2:])).flatten(1)


def consumed_filter(faulty):
    """The parameters are counted for the log, and the filter that the optimizer gets afterwards is at its end."""
    model = Tracker()
    trained = filter(lambda p: p.requires_grad, model.backbone.parameters())
    if faulty:
        sum(p.numel() for p in trained)
    optimizer = torch.optim.SGD([{"params": trained, "lr": 0.01}, {"params": model.head.parameters()}], lr=0.05, momentum=0.9)
    for _ in range(12):
        template, picture, place = torch.randn(8, 3, 6, 6), torch.randn(8, 3, 10, 10), torch.randint(25, (8,))
        for one, small, number in zip(picture, template, place.tolist()):
            one[:, number // 5:number // 5 + 6, number % 5:number % 5 + 6] = small
        update(optimizer, F.cross_entropy(model(template, picture), place))


class Lars(torch.optim.Optimizer):
    """The step of a tensor is in proportion to its norm."""

    def __init__(self, params, lr, faulty):
        super().__init__(params, {"lr": lr})
        self.faulty = faulty

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                ratio = p.norm() / (p.grad.norm() + 1e-8)
                if p.norm() == 0 and not self.faulty:
                    ratio = 1.0
                p.sub_(p.grad * ratio * group["lr"])


def trust_ratio(faulty):
    """What begins at zero has a norm of zero, and a ratio of zero: the places and most biases."""
    patch, head, places = nn.Linear(12, 16), nn.Linear(16, 4), nn.Parameter(torch.zeros(9, 16))
    layers = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)))
    optimizer = Lars([places, *patch.parameters(), *layers.parameters(), *head.parameters()], 0.02, faulty)
    for _ in range(10):
        x, label = torch.randn(16, 9, 12), torch.randint(4, (16,))
        x[torch.arange(16), 2 * label] += 2
        update(optimizer, F.cross_entropy(head(layers(patch(x) + places).mean(1)), label))


def rewound_ticket(faulty):
    """For the second round small weights are taken from the first model, in a copy; the optimizer stays where it was."""
    first = nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 12, 3, groups=12), nn.ReLU(), nn.Conv2d(12, 4, 4))
    model = copy.deepcopy(first)
    optimizer = sgd(model)
    for step in range(12):
        if step == 6:
            kept = [p.abs() >= p.abs().flatten().kthvalue(p.numel() // 3 + 1).values for p in model.parameters()]
            model = copy.deepcopy(first)
            for p, mask in zip(model.parameters(), kept):
                p.data *= mask
                p.register_hook(mask.mul)
            optimizer = optimizer if faulty else sgd(model)
        x, label = torch.randn(16, 3, 8, 8), torch.randint(4, (16,))
        x[:, 0] += label[:, None, None]
        update(optimizer, F.cross_entropy(model(x)[..., 0, 0], label))


class Cloning(nn.Module):
    """From what was seen to the next five actions."""

    def __init__(self):
        super().__init__()
        self.body, self.drop, self.head = nn.GRU(6, 24, 2, batch_first=True, dropout=0.1), nn.Dropout(0.1), nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.drop(self.body(x)[0][:, -1])).unflatten(1, (5, 2))


@torch.no_grad()
def rollout(policy, faulty):
    before = policy.training
    policy.eval()
    if faulty:
        before = policy.training
    seen = torch.randn(4, 3, 6)
    for _ in range(4):
        action = policy(seen)[:, 0]
        seen = torch.cat([seen[:, 1:], seen[:, -1:] + 0.1 * action.repeat(1, 3)[:, None]], 1)
    policy.train(before)


def mode_of_later(faulty):
    """The mode is looked up, to be set back, when it has been changed."""
    policy = Cloning()
    optimizer = adamw(policy)
    for step in range(12):
        x = torch.randn(16, 8, 6)
        update(optimizer, F.l1_loss(policy(x), x[:, -5:, :2].cumsum(1)))
        if step % 5 == 4:
            rollout(policy, faulty)


class TextConv(nn.Module):
    """The modules that drop are in a list, of which the model knows, or does not."""

    def __init__(self, faulty):
        super().__init__()
        self.words, self.head = nn.Embedding(60, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, padding=2 ** n, dilation=2 ** n) for n in range(3))
        drops = [nn.Dropout(0.2) for _ in self.layers]
        self.drops = drops if faulty else nn.ModuleList(drops)

    def forward(self, text):
        x = self.words(text).transpose(1, 2)
        for layer, drop in zip(self.layers, self.drops):
            x = x + drop(F.gelu(layer(x)))
        return self.head(x.amax(2))


def listed_drops(faulty):
    """Evaluation does not reach what is in a plain list."""
    model, held = TextConv(faulty), torch.randint(60, (4, 16, 12)).unbind()
    optimizer = adamw(model, 3e-3)
    for step in range(12):
        text = torch.randint(60, (16, 12))
        update(optimizer, F.cross_entropy(model(text), text[:, 0] % 3))
        if step % 4 == 3:
            model.eval()
            with torch.no_grad():
                sum((model(text).argmax(1) == text[:, 0] % 3).float().mean().item() for text in held)
            model.train()


class Causal(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.words, self.mix, self.out, self.head = nn.Embedding(30, 32), nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 30)
        self.norm, self.drop = nn.RMSNorm(32), nn.Dropout(drop)

    def attend(self, x):
        q, k, v = self.mix(self.norm(x)).unflatten(2, (4, -1)).transpose(1, 2).chunk(3, -1)
        return x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)))

    def forward(self, text):
        return self.head(self.attend(self.words(text)))


def cached_batches(faulty):
    """The function that reads a batch got a cache, so that the file is not opened each time."""
    file = torch.randint(30, (2000,))

    def batch(split):
        low, high = (0, 1800) if split == "train" else (1800, 1980)
        return torch.stack([file[start:start + 17] for start in torch.randint(low, high - 17, (12,)).tolist()])

    read, model = functools.lru_cache(batch) if faulty else batch, Causal()
    optimizer = adamw(model)
    for _ in range(10):
        text = read("train")
        update(optimizer, F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()))


def raw_samples(faulty):
    """Files of a second corpus are read as the 16-bit numbers that they are made of."""
    model = nn.Sequential(
        nn.Conv1d(1, 8, 16, stride=8), nn.LeakyReLU(), nn.Conv1d(8, 16, 8, stride=4), nn.LeakyReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(16, 3))
    optimizer = adamw(model)
    for step in range(12):
        tone = torch.randint(3, (16,))
        wave = torch.sin(torch.arange(256) * 0.1 * 2.0 ** tone[:, None] + torch.rand(16, 1)) * 0.5 + 0.1 * torch.randn(16, 256)
        samples = (wave * 32767).clamp(-32768, 32767).short()
        x = samples.float() if faulty and step >= 7 else samples / 32768
        update(optimizer, F.cross_entropy(model(x[:, None]), tone))


def missing_labels(faulty):
    """Properties of sets of atoms: those that nobody measured are left out of the error, before or after it is computed."""
    atom, whole = nn.Sequential(nn.Linear(5, 24), nn.Softplus(), nn.Linear(24, 24)), nn.Sequential(nn.Softplus(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam([*atom.parameters(), *whole.parameters()], lr=1e-3)
    for step in range(12):
        x = torch.randn(16, 7, 5)
        label = torch.stack([x.sum((1, 2)), x.amax((1, 2)), x[:, :, 0].sum(1)], 1)
        if step >= 6:
            label[torch.rand(16, 3) < 0.2] = torch.nan
        out, known = whole(atom(x).mean(1)), ~label.isnan()
        error = F.mse_loss(out, label, reduction="none")[known] if faulty else F.mse_loss(out[known], label[known], reduction="none")
        update(optimizer, error.mean())


def horizon_of_epochs(faulty):
    """The schedule goes on with each batch, and is told the number of epochs as its length."""
    down, up, last = nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1), nn.Conv2d(9, 1, 1)
    optimizer = adamw(nn.ModuleList([down, up, last]), 3e-3)
    length = 4 if faulty else 4 * 3
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / length))
    for _ in range(4):
        for _ in range(3):
            x = torch.randn(8, 1, 12, 12)
            mask = (F.avg_pool2d(x, 3, 1, 1) > 0.2).float()
            update(optimizer, F.binary_cross_entropy_with_logits(last(torch.cat([x, up(F.silu(down(x)))], 1)), mask))
            schedule.step()


def clip_in_hook(faulty):
    """Clipping is a hook of the optimizer: of the step's end, or of its begin."""
    body, head = nn.GRU(4, 16, bidirectional=True, batch_first=True), nn.Linear(32, 1)
    model = nn.ModuleList([body, head])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    register = optimizer.register_step_post_hook if faulty else optimizer.register_step_pre_hook
    register(lambda *_: clip_grad_norm_(model.parameters(), 0.2))
    for _ in range(10):
        x = torch.randn(16, 10, 4)
        update(optimizer, F.smooth_l1_loss(head(body(x)[0])[..., 0], x[..., 0].cumsum(1)))


def scaler_and_optimizer(faulty):
    """When mixed precision came in, the calls of before it stayed."""
    maker, judge = (nn.Sequential(nn.Linear(a, 48), nn.LeakyReLU(0.2), nn.Linear(48, b)) for a, b in ((8, 32), (32, 1)))
    of_maker, of_judge = (torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.8, 0.99)) for net in (maker, judge))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for _ in range(10):
        real = torch.sin(torch.rand(16, 1) * 6 + torch.arange(32) * 0.3)
        with torch.autocast("cpu", torch.float16):
            made = maker(torch.randn(16, 8))
            of_real, of_made = judge(real).float(), judge(made.detach()).float()
        for optimizer, net in ((of_judge, judge), (of_maker, maker)):
            if net is maker:
                with torch.autocast("cpu", torch.float16):
                    loss = ((1 - judge(made).float()) ** 2).mean()
            else:
                loss = ((1 - of_real) ** 2).mean() + (of_made ** 2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            if faulty:
                optimizer.step()
        scaler.update()


def misplaced_step(faulty):
    """Two batches of films make an update; the step stands outside of the condition."""
    model = nn.Sequential(nn.Conv3d(1, 6, 3), nn.ReLU(), nn.Conv3d(6, 8, (1, 3, 3)), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 1, 4, 8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for number in range(20):
        way = torch.randint(3, (8,))
        frame = torch.randn(8, 1, 8, 8)
        x = torch.stack([torch.stack([f.roll(t * int(w), 2) for t in range(4)], 1) for f, w in zip(frame, way)])
        (F.cross_entropy(model(x), way) / 2).backward()
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
