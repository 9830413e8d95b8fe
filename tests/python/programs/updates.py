"""Loops that people write, small. Prints the bits of what they compute.

usage: updates.py LOOP [PASSES [CHECKPOINT]]

PASSES: how many evaluation passes a loop makes at each occasion. They draw no random numbers, but in
the loop `drawing`. CHECKPOINT: file that the loop `resumed` writes in its middle, or goes on from if it
is there.
"""
import logging
import os
import sys
import warnings

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.nn import functional

UPDATES = 4


def network(width=4, out=2):
    return nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, out))


def batch(index, width=4):
    generator = torch.Generator().manual_seed(index)
    return torch.randn(6, width, generator=generator), torch.randint(0, 2, (6,), generator=generator)


def tell(*tensors):
    print([value.hex() for tensor in tensors for value in tensor.detach().double().flatten().tolist()])


def evaluate(model, passes, first=100):
    model.eval()
    with torch.no_grad():
        for index in range(passes):
            x, y = batch(first + index)
            functional.cross_entropy(model(x), y)
    model.train()


def update(model, optimizer, index):
    x, y = batch(index)
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    tell(loss)


def plain(passes):
    """Evaluation before the first update, between all updates, and after the last one. The data of each update
    are drawn after it."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for index in range(UPDATES):
        evaluate(model, passes)
        torch.rand(6, 4)  # as augmentation does
        update(model, optimizer, index)
    evaluate(model, passes)


def drawing(passes):
    """Evaluation without eval(), which draws random numbers of dropout."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for index in range(UPDATES):
        with torch.no_grad():
            for _ in range(passes):
                model(batch(100)[0])
        update(model, optimizer, index)


def lightning(passes):
    """Lightning's trainer: `passes` sanity checks at the beginning, then validation after each epoch."""
    import pytorch_lightning

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    class Trained(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def forward(self, x):
            return self.network(x)

        def training_step(self, data, index):
            loss = functional.cross_entropy(self(data[0]), data[1])
            tell(loss)
            return loss

        def validation_step(self, data, index):
            functional.cross_entropy(self(data[0]), data[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    def loader(first, count):
        return torch.utils.data.DataLoader([batch(first + index) for index in range(count)], batch_size=None)

    trainer = pytorch_lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, num_sanity_val_steps=passes, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Trained(), loader(0, UPDATES // 2), loader(100, 5))


def early(passes):
    """Tries the model before the optimizer is made."""
    model = network()
    evaluate(model, passes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(UPDATES):
        update(model, optimizer, index)


def accumulation(passes):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for index in range(UPDATES):
        optimizer.zero_grad()
        for micro in range(3):
            x, y = batch(3 * index + micro)
            loss = functional.cross_entropy(model(x), y) / 3
            loss.backward()
            tell(loss)
        optimizer.step()
        evaluate(model, passes)


def gan(passes):
    generator, critic = network(out=3), network(3, 1)
    generator_optimizer = torch.optim.Adam(generator.parameters())
    critic_optimizer = torch.optim.Adam(critic.parameters())
    for index in range(UPDATES // 2):
        noise, _ = batch(index)
        with torch.no_grad():
            fake = generator(noise)
        critic_optimizer.zero_grad()
        (critic(fake).mean() - critic(batch(50 + index, 3)[0]).mean()).backward()
        critic_optimizer.step()
        generator_optimizer.zero_grad()
        loss = -critic(generator(noise)).mean()
        loss.backward()
        generator_optimizer.step()
        tell(loss)


def ppo(passes):
    """Acts without gradients, then learns from that in two epochs."""
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(policy.parameters())
    for index in range(UPDATES // 2):
        states, actions, old = [], [], []
        with torch.no_grad():
            for moment in range(3):
                state, _ = batch(10 * index + moment)
                chances = policy(state).log_softmax(-1)
                action = chances.exp().multinomial(1)
                states.append(state), actions.append(action), old.append(chances.gather(1, action))
        for _ in range(2):
            chances = policy(torch.cat(states)).log_softmax(-1).gather(1, torch.cat(actions))
            loss = -(chances - torch.cat(old)).exp().clamp(0.8, 1.2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tell(loss)


def dqn(passes):
    """Acts, then learns once with a target network; evaluation of the one that learns at the end."""
    learns, target = network(), network()
    target.load_state_dict(learns.state_dict())
    optimizer = torch.optim.Adam(learns.parameters())
    for index in range(UPDATES):
        states, actions = batch(index)
        q = learns(states).gather(1, actions[:, None])
        with torch.no_grad():
            best = target(states).max(1, keepdim=True).values
        loss = functional.mse_loss(q, 0.9 * best + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tell(loss)
        evaluate(learns, passes)


def resumed(passes, kind=torch.optim.AdamW):
    """PASSES: 1, to go on without the optimizer's state."""
    model = network()
    optimizer = kind(model.parameters(), lr=0.01)
    first, path = 0, sys.argv[3]
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        if not passes:
            optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])
        first = 2
    for index in range(first, UPDATES):
        if index == 2 and first == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "random": torch.get_rng_state()}, path)
        update(model, optimizer, index)


def resumed_without_counter(passes):
    resumed(passes, torch.optim.SGD)


def clipped(passes):
    """PASSES: which function clips. Prints the norm of all gradients before and after it, and its result."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def norm():
        return torch.cat([p.grad.flatten().double() for p in model.parameters()]).norm()

    for index in range(UPDATES):
        x, y = batch(index)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        before = norm()
        if passes == 0:
            told = clip_grad_norm_(model.parameters(), 0.1 * (index + 1))  # a generator
        elif passes == 1:
            told = clip_grad_value_(list(model.parameters()), 0.01)
        else:
            told = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, told)
        tell(before, norm(), torch.as_tensor(-1.0 if told is None else told))
        optimizer.step()
    tell(*model.parameters())


if __name__ == "__main__":
    torch.manual_seed(5)
    globals()[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 0)
