"""Clean programs, second part: adversaries, agents, teachers, representations. Also the data that both parts draw.

Each is right, though it looks like trouble; see clean.py, which has the table of all.
"""
import copy
import math

import torch
from torch import nn
from torch.nn import functional


def update(optimizer, loss):
    """Updates the weights from a loss as a usual loop does."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def rows(steps, count=16, width=8):
    """Yields for each step vectors and the results of a noisy linear rule for them."""
    truth = torch.randn(width, 1)
    for _ in range(steps):
        x = torch.randn(count, width)
        yield x, x @ truth + 0.1 * torch.randn(count, 1)


def pictures(steps, count=8, channels=3):
    """Yields for each step pictures with one brighter quarter, and the number of that quarter."""
    for _ in range(steps):
        label = torch.randint(4, (count,))
        x = 0.5 * torch.randn(count, channels, 8, 8)
        for picture, quarter in zip(x, label.tolist()):
            picture[:, quarter // 2 * 4:quarter // 2 * 4 + 4, quarter % 2 * 4:quarter % 2 * 4 + 4] += 1
        yield x, label


def texts(steps, count=8, length=12, words=32):
    """Yields for each step sequences whose tokens mostly follow from the token before, and the same shifted by one."""
    for _ in range(steps):
        text = [torch.randint(words, (count,))]
        for _ in range(length):
            text.append((3 * text[-1] + 1 + torch.randint(2, (count,))) % words)
        text = torch.stack(text, 1)
        yield text[:, :-1], text[:, 1:]


def mlp(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def dcgan():
    """Fools: stale gradient, two steps a batch, the same input thrice. The generator's backward pass leaves gradients in
    the critic, which are cleared before they are used; the critic's two backward calls add up on purpose; samples are drawn
    of fixed noise."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1, bias=False), nn.Tanh())
    critic = nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 1, 4, bias=False), nn.Flatten(0))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    fixed = torch.randn(4, 8, 1, 1)
    for step, (real, _) in enumerate(pictures(8)):
        ones, zeros = torch.ones(len(real)), torch.zeros(len(real))
        critic.zero_grad()
        criterion(critic(real), ones).backward()
        fake = generator(torch.randn(len(real), 8, 1, 1))
        criterion(critic(fake.detach()), zeros).backward()
        of_critic.step()
        generator.zero_grad()
        criterion(critic(fake), ones).backward()
        of_generator.step()
        if step % 2 == 1:
            with torch.no_grad():
                generator(fixed)


def wgan():
    """Fools: no gradient, a parameter that never moves. The bias of the critic's last layer adds the same to both of its
    means, so its gradient is zero; weights are clipped to a limit after the step, where many of them stay."""
    generator, critic = mlp(4, 16, 2), mlp(2, 16, 1)
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    of_generator = torch.optim.RMSprop(generator.parameters(), lr=5e-3)
    for _ in range(4):
        for _ in range(2):
            real = torch.randn(32, 2) * 0.3 + 1
            fake = generator(torch.randn(32, 4)).detach()
            update(of_critic, critic(fake).mean() - critic(real).mean())
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-0.1, 0.1)
        update(of_generator, -critic(generator(torch.randn(32, 4))).mean())


def gradient_penalty():
    """Fools: stale gradient, no gradient. The gradient of the critic is itself differentiated, and the critic is called
    three times for one loss; biases of its last layer have no part in the penalty."""
    generator, critic = mlp(4, 16, 2), nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for step in range(9):
        real = torch.randn(32, 2) * 0.3 + 1
        with torch.no_grad():
            fake = generator(torch.randn(32, 4))
        mix = torch.lerp(real, fake, torch.rand(32, 1)).requires_grad_()
        gradient, = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
        penalty = ((gradient.norm(dim=1) - 1) ** 2).mean()
        update(of_critic, critic(fake).mean() - critic(real).mean() + 10 * penalty)
        if step % 3 == 2:
            update(of_generator, -critic(generator(torch.randn(32, 4))).mean())


def ppo():
    """Fools: two steps a batch, the same batch again. A rollout is learned from in two epochs of shuffled mini-batches; in
    the first of them the ratio to the old policy is one, and forbidden actions have logits of -inf."""
    policy, critic = mlp(6, 32, 4), mlp(6, 32, 1)
    parameters = [*policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    wanted = torch.randn(6, 4)

    def act(state, allowed):
        return torch.distributions.Categorical(logits=policy(state).masked_fill(~allowed, -torch.inf))

    for _ in range(3):
        state = torch.randn(32, 6)
        allowed = torch.rand(32, 4) < 0.7
        allowed[:, 0] = True
        with torch.no_grad():
            choice = act(state, allowed)
            action = choice.sample()
            before = choice.log_prob(action)
            gain = (state @ wanted).gather(1, action[:, None])[:, 0]
            advantage = gain - critic(state)[:, 0]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(2):
            for part in torch.randperm(32).split(16):
                ratio = (act(state[part], allowed[part]).log_prob(action[part]) - before[part]).exp()
                gained = torch.minimum(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part])
                loss = functional.mse_loss(critic(state[part])[:, 0], gain[part]) - gained.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()


def dqn():
    """Fools: a parameter that never moves, optimizer of other tensors, the same input again. The target network is no part
    of the optimizer and is copied every fourth update; a replay buffer returns transitions that were seen before."""
    network = mlp(4, 32, 3)
    target = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    memory, state, turn = [], torch.randn(4), torch.randn(3, 4)
    for time in range(40):
        with torch.no_grad():
            action = int(torch.randint(3, ())) if torch.rand(()) < 0.3 else int(network(state[None]).argmax())
        then = 0.8 * state + 0.3 * turn[action] + 0.1 * torch.randn(4)
        memory.append((state, action, float(-then.norm()), then))
        state = then
        if time < 16 or time % 2:
            continue
        then, taken, gain, state_then = zip(*(memory[i] for i in torch.randperm(len(memory))[:16].tolist()))
        value = network(torch.stack(then)).gather(1, torch.tensor(taken)[:, None])[:, 0]
        with torch.no_grad():
            goal = torch.tensor(gain) + 0.9 * target(torch.stack(state_then)).amax(1)
        update(optimizer, functional.smooth_l1_loss(value, goal))
        if time % 8 == 0:
            target.load_state_dict(network.state_dict())


def actor_critic():
    """Fools: clipping after the step, two steps a batch, optimizer of other tensors. Three optimizers learn from one batch,
    each clipped before its own step, though after that of the one before; the last of them has one number that is in no
    module."""
    actor, critic = mlp(4, 32, 2), mlp(5, 32, 1)
    temperature = torch.zeros(1, requires_grad=True)
    of_actor, of_critic = torch.optim.Adam(actor.parameters(), lr=3e-3), torch.optim.Adam(critic.parameters(), lr=3e-3)
    of_temperature = torch.optim.Adam([temperature], lr=3e-3)
    for state, wanted in rows(8, width=4):
        mean, spread = actor(state).chunk(2, 1)
        choice = torch.distributions.Normal(mean, spread.clamp(-3, 0).exp())
        action = choice.rsample()
        gain = -(action.detach() - 0.3 * wanted) ** 2
        of_critic.zero_grad()
        functional.mse_loss(critic(torch.cat([state, action.detach()], 1)), gain).backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        of_critic.step()
        log_chance = choice.log_prob(action)
        loss = (temperature.exp().detach() * log_chance - critic(torch.cat([state, action], 1))).mean()
        of_actor.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        of_actor.step()
        update(of_temperature, -(temperature * (log_chance.detach() - 1)).mean())


def ema():
    """Fools: optimizer of other tensors, no gradient, same input other output. The averaged copy has parameters that only
    the average moves, and both models are asked for the same batch."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    held = torch.randn(16, 8)
    for step, (x, y) in enumerate(rows(10)):
        update(optimizer, functional.mse_loss(model(x), y))
        average.update_parameters(model)
        if step % 5 == 4:
            average.eval()
            model.eval()
            with torch.no_grad():
                average(held)
                model(held)
            model.train()


def mean_teacher():
    """Fools: same input other output, no gradient. Teacher and student have dropout in training mode and see the same
    pictures with other noise; the weight of their agreement, and so its part of the gradient, begins at zero."""
    student = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    for step, (x, label) in enumerate(pictures(10, 16)):
        told, untold = x[:4], x
        with torch.no_grad():
            wanted = teacher(untold + 0.1 * torch.randn_like(untold)).softmax(1)
        agreement = functional.mse_loss(student(untold + 0.1 * torch.randn_like(untold)).softmax(1), wanted)
        update(optimizer, functional.cross_entropy(student(told), label[:4]) + step / 10 * agreement)
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast, 0.1)


def momentum_contrast():
    """Fools: same input other output, a parameter that never gets a gradient. The key encoder is a moving average, and a
    queue of old keys, a buffer that each step overwrites in part, is in each loss."""
    query = mlp(8, 32, 8)
    key = copy.deepcopy(query).requires_grad_(False)
    optimizer = torch.optim.SGD(query.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    queue = functional.normalize(torch.randn(64, 8), dim=1)
    for step, (x, _) in enumerate(rows(10)):
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters()):
                slow.lerp_(fast, 0.01)
            keys = functional.normalize(key(x + 0.1 * torch.randn_like(x)), dim=1)
        queries = functional.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
        likeness = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ queue.T], 1) / 0.2
        update(optimizer, functional.cross_entropy(likeness, torch.zeros(16, dtype=torch.long)))
        queue[step % 4 * 16:step % 4 * 16 + 16] = keys


def distillation():
    """Fools: a module left in eval mode, a parameter that never moves, no gradient. The teacher has dropout and is meant to
    be in eval mode and to stay as it is."""
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
    of_teacher = torch.optim.Adam(teacher.parameters(), lr=1e-3)
    for x, label in pictures(4):
        update(of_teacher, functional.cross_entropy(teacher(x), label))
    teacher.eval().requires_grad_(False)
    student = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for x, _ in pictures(8):
        wanted = functional.softmax(teacher(x) / 2, 1)
        update(optimizer, functional.kl_div(functional.log_softmax(student(x) / 2, 1), wanted, reduction="batchmean") * 4)


def simcse():
    """Fools: same input other output, the same input twice. The encoder is called twice with equal sentences: dropout makes
    the two views of which the loss is."""
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.drop, self.out = nn.Embedding(32, 24), nn.Dropout(0.1), mlp(24, 24, 16)

        def forward(self, text):
            return functional.normalize(self.out(self.drop(self.words(text)).mean(1)), dim=1)

    encoder = Encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    for text, _ in texts(10):
        one, other = encoder(text), encoder(text)
        update(optimizer, functional.cross_entropy(one @ other.T / 0.05, torch.arange(len(text))))


def siamese():
    """Fools: no gradient, two forward passes a step. Both towers are one module; pairs that are far enough apart have no
    loss, and so rows of its gradient are zero."""
    tower = mlp(8, 32, 4)
    optimizer = torch.optim.Adam(tower.parameters(), lr=1e-3)
    for x, _ in rows(10):
        same = torch.rand(16) < 0.5
        other = torch.where(same[:, None], x + 0.1 * torch.randn_like(x), x.roll(1, 0))
        distance = functional.pairwise_distance(tower(x), tower(other))
        update(optimizer, torch.where(same, distance ** 2, (1 - distance).clamp(min=0) ** 2).mean())


def triplets():
    """Fools: no gradient, loss of zero. Triplets beyond the margin give no gradient; the points are normalised."""
    embed = mlp(8, 32, 8)
    optimizer = torch.optim.Adam(embed.parameters(), lr=3e-3)
    criterion = nn.TripletMarginLoss(margin=0.5)
    centres = torch.randn(4, 8)
    for _ in range(10):
        kind = torch.randint(4, (16,))
        other = (kind + torch.randint(1, 4, (16,))) % 4
        points = [embed(centres[which] + 0.8 * torch.randn(16, 8)) for which in (kind, kind, other)]
        update(optimizer, criterion(*(functional.normalize(point, dim=1) for point in points)))


def diffusion():
    """Fools: input scale jumps. The noise of a batch is drawn between 0.02 and 20, so the network is given inputs of very
    different size, which it divides by what is known of the noise; its last layer begins with zeros."""
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(9, 32, 8)
            nn.init.zeros_(self.net[-1].weight)
            nn.init.zeros_(self.net[-1].bias)

        def forward(self, x, level):
            return self.net(torch.cat([x / (1 + level ** 2).sqrt(), (level.log() / 4).expand(len(x), 1)], 1))

    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for x, _ in rows(12):
        level = (math.log(0.02) + math.log(1000) * torch.rand(1)).exp()
        noise = torch.randn_like(x)
        update(optimizer, functional.mse_loss(model(x + level * noise, level), noise))


def vae():
    """Fools: same input other output, steadily growing loss part. The code is drawn anew in each call, and decoder samples
    are drawn of the prior between updates."""
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = mlp(64, 32, 8), mlp(4, 32, 64)

        def forward(self, x):
            mean, log_variance = self.encoder(x).chunk(2, 1)
            code = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
            return self.decoder(code), mean, log_variance

    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, _) in enumerate(pictures(10, channels=1)):
        x = x.flatten(1).sigmoid()
        made, mean, log_variance = model(x)
        divergence = -0.5 * (1 + log_variance - mean ** 2 - log_variance.exp()).sum()
        weight = min(1.0, step / 5)
        update(optimizer, (functional.binary_cross_entropy_with_logits(made, x, reduction="sum") + weight * divergence) / len(x))
        if step == 4:
            with torch.no_grad():
                model.decoder(torch.randn(4, 4))


def no_input():
    """Fools: the same input in all steps. The module is a table of centres of clusters and is called without arguments; the
    batch is in the loss alone."""
    class Centres(nn.Module):
        def __init__(self):
            super().__init__()
            self.place, self.log_share = nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.zeros(5))

        def forward(self):
            return self.place, self.log_share.log_softmax(0)

    model = Centres()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    truth = 2 * torch.randn(5, 2)
    for _ in range(12):
        x = truth[torch.randint(5, (64,))] + 0.3 * torch.randn(64, 2)
        place, log_share = model()
        distance = ((x[:, None] - place) ** 2).sum(2)
        update(optimizer, -(log_share - distance / 2).logsumexp(1).mean())


def adversarial_training():
    """Fools: stale gradient, zero_grad missing, the same labels thrice. The attack asks for gradients of the input alone,
    so it leaves none in the weights; the model sees nearly the same batch three times a step."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, label in pictures(8):
        attack = x.clone()
        for _ in range(2):
            attack.requires_grad_()
            gradient, = torch.autograd.grad(functional.cross_entropy(model(attack), label), attack)
            attack = torch.clamp(attack.detach() + 0.05 * gradient.sign(), x - 0.1, x + 0.1)
        update(optimizer, functional.cross_entropy(model(attack), label))


def sharpness_aware():
    """Fools: same input other output, two backward passes a step, weights changed before the step. The second pass is made
    where the loss is higher; the weights are put back before the optimizer's step."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for x, y in rows(10):
        functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            before = [p.clone() for p in model.parameters()]
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=float(0.05 / (norm + 1e-12)))
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for parameter, old in zip(model.parameters(), before):
                parameter.copy_(old)
        optimizer.step()
        optimizer.zero_grad()


def gradient_reversal():
    """Fools: norms that grow, a loss that does not fall. The domain classifier's gradient is turned around on its way to
    the features, which are to make that classifier fail."""
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.weight = weight
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return -ctx.weight * gradient, None

    features, task, domain = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 1), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*features.parameters(), *task.parameters(), *domain.parameters()], lr=1e-3)
    for step, (x, y) in enumerate(rows(10)):
        known = features(x)
        both = torch.cat([known, features(torch.randn(16, 8) + 0.5)])
        where = torch.cat([torch.zeros(16, 1), torch.ones(16, 1)])
        loss = functional.binary_cross_entropy_with_logits(domain(Reverse.apply(both, step / 10)), where)
        update(optimizer, functional.mse_loss(task(known), y) + loss)


def missing_values():
    """Fools: NaN. A NaN is how the data say that a value is missing: the model puts a learned value in its place, and
    labels that are missing have no part in the loss."""
    class Imputing(nn.Module):
        def __init__(self):
            super().__init__()
            self.default, self.net = nn.Parameter(torch.zeros(8)), mlp(16, 32, 1)

        def forward(self, x):
            gone = x.isnan()
            return self.net(torch.cat([torch.where(gone, self.default, x), gone.float()], 1))

    model = Imputing()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in rows(10):
        x = x.masked_fill(torch.rand_like(x) < 0.2, torch.nan)
        y = y.masked_fill(torch.rand_like(y) < 0.2, torch.nan)
        known = ~y.isnan()
        update(optimizer, functional.mse_loss(model(x)[known], y[known]))


def separable():
    """Fools: steadily growing norms. On data that a line separates, the weights of a logistic regression that began at zero
    grow in each step, as they must; the loss falls."""
    model = nn.Linear(8, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    truth = torch.randn(8, 1)
    for _ in range(12):
        x = torch.randn(64, 8)
        update(optimizer, functional.binary_cross_entropy_with_logits(model(x), (x @ truth > 0).float()))


CLEAN_2 = (
    dcgan, wgan, gradient_penalty, ppo, dqn, actor_critic, ema, mean_teacher, momentum_contrast, distillation, simcse,
    siamese, triplets, diffusion, vae, no_input, adversarial_training, sharpness_aware, gradient_reversal, missing_values,
    separable)
