"""Clean programs, fourth part: losses, gradients and updates that jump, grow and fall as they should.

Each is right, though it looks like trouble; see clean.py, which has the table of all.
"""
import math

import torch
from torch import nn
from torch.nn import functional

import parameters
from clean_2 import mlp, pictures, rows, update


def warm_up_from_nothing():
    """Fools: updates that grow in each step. The learning rate begins at a millionth and doubles."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    for step, (x, y) in enumerate(rows(16)):
        optimizer.param_groups[0]["lr"] = min(1e-2, 1e-6 * 2 ** step)
        update(optimizer, functional.mse_loss(model(x), y))


def cosine_with_restarts():
    """Fools: updates that jump. A cosine schedule begins again every six steps."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 6, eta_min=1e-5)
    for x, y in rows(20):
        update(optimizer, functional.mse_loss(model(x), y))
        schedule.step()


def batches_of_one():
    """Fools: a loss of great noise. Each step takes one row, some of which are outliers."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    for step, (x, y) in enumerate(rows(40, count=1)):
        update(optimizer, functional.mse_loss(model(x), y + (4 * torch.randn(1, 1) if step % 7 == 3 else 0)))


def far_first_step():
    """Fools: a first step far from all others. The bias of the targets is learned at once."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
    for step, (x, y) in enumerate(rows(14)):
        if step == 1:
            optimizer.param_groups[0]["lr"] = 0.02
        update(optimizer, functional.mse_loss(model(x), y + 100))


def harder_lessons():
    """Fools: a loss that jumps and stays high. A curriculum takes harder rows from step eight on."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (x, y) in enumerate(rows(24)):
        update(optimizer, functional.mse_loss(model(x), y if step < 8 else 3 * y ** 2))


def growing_returns():
    """Fools: a loss that grows. A critic learns returns that grow with its policy; the losses of the policy have signs."""
    policy, critic = mlp(4, 16, 2), mlp(4, 16, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-2)
    for step in range(24):
        state = torch.randn(16, 4)
        choice = torch.distributions.Categorical(logits=policy(state))
        action = choice.sample()
        gain = (action == (state[:, 0] > 0)).float() * 1.3 ** step
        value = critic(state).squeeze(1)
        advantage = gain - value.detach()
        update(optimizer, -(choice.log_prob(action) * advantage).mean() + functional.mse_loss(value, gain))


def rare_rewards():
    """Fools: a loss of zero with spikes. Most steps have no reward, and nothing to learn."""
    policy = mlp(4, 16, 3)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    for step in range(24):
        choice = torch.distributions.Categorical(logits=policy(torch.randn(8, 4)))
        update(optimizer, -(choice.log_prob(choice.sample()) * (step % 5 == 4)).mean())


def critic_first():
    """Fools: steps of two kinds. The critic of a GAN makes four updates for one of its generator, each a step."""
    generator, critic = mlp(4, 16, 2), mlp(2, 16, 1)
    for_generator = torch.optim.RMSprop(generator.parameters(), lr=5e-3)
    for_critic = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    for step in range(25):
        fake = generator(torch.randn(32, 4))
        if step % 5 == 4:
            update(for_generator, -50 * critic(fake).mean())
        else:
            real = torch.randn(32, 2) + 2
            update(for_critic, critic(fake.detach()).mean() - critic(real).mean())


def frozen_statistics():
    """Fools: mode. The statistics of batch norms are frozen on purpose, and no dropout is there."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for x, label in pictures(10):
        update(optimizer, functional.cross_entropy(model(x), label))


def teacher_in_evaluation():
    """Fools: mode. A teacher with a dropout is in evaluation mode, and moves as an average alone; the student is not."""
    def net():
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))

    student, teacher = net(), net().eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    for x, _ in rows(10):
        with torch.no_grad():
            target = teacher(x).softmax(1)
        update(optimizer, functional.cross_entropy(student(x + 0.1 * torch.randn_like(x)), target))
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast, 0.1)


def without_a_dropout():
    """Fools: mode. A model in evaluation mode all along, whose dropouts have p = 0."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 1)).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def large_gradients():
    """Fools: infinite moment. A loss of large numbers, whose squares still fit; and clipping of far larger ones."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (x, y) in enumerate(rows(12)):
        optimizer.zero_grad()
        (functional.mse_loss(model(x), y) * (1e12 if step < 6 else 1e22)).backward()
        if step >= 6:
            nn.utils.clip_grad_value_(model.parameters(), 1e12)
        optimizer.step()


def cyclic_epochs():
    """Fools: epochs with equal bits, a short last group. Each epoch of ten batches in a fixed order makes groups of four."""
    model, data = mlp(8, 32, 1), list(rows(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(3):
        for begin in range(0, 10, 4):
            group = data[begin:begin + 4]
            optimizer.zero_grad()
            for x, y in group:
                (functional.mse_loss(model(x), y) / len(group)).backward()
            optimizer.step()


def sharp_minimum():
    """Fools: a spike. A loss with a pole near the data jumps now and then, and comes back."""
    scale = nn.Linear(1, 1, bias=False)
    nn.init.constant_(scale.weight, 1.0)
    optimizer = torch.optim.SGD(scale.parameters(), lr=1e-4)
    for step in range(24):
        x = torch.rand(8, 1) + (0.05 if step % 9 == 8 else 1.0)
        update(optimizer, (1 / scale(x) ** 2).mean() + math.pi)


def penalty_alone():
    """Fools: no gradient. The loss is made of gradients alone, which the bias of the last layer does not change."""
    parameters.detached_bias(False, penalty_alone=True)


CLEAN_4 = (
    warm_up_from_nothing, cosine_with_restarts, batches_of_one, far_first_step, harder_lessons, growing_returns, rare_rewards,
    critic_first, frozen_statistics, teacher_in_evaluation, without_a_dropout, large_gradients, cyclic_epochs, sharp_minimum,
    penalty_alone)
