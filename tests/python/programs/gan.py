"""Two models, two optimizers, a gradient penalty. Prints the bits of its result.

usage: gan.py
"""
import hashlib

import torch
from torch import nn

torch.manual_seed(3)
generator = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=0.01)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
for _ in range(4):
    real, fake = torch.randn(5, 2), generator(torch.randn(5, 4))
    mixed = (real + fake.detach()).requires_grad_()
    penalty, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    critic_optimizer.zero_grad()
    (critic(fake.detach()).mean() - critic(real).mean() + penalty.norm(dim=1).sub(1).square().mean()
     ).backward()
    critic_optimizer.step()
    generator_optimizer.zero_grad()
    (-critic(fake).mean()).backward()
    generator_optimizer.step()
bits = b"".join(p.detach().numpy().tobytes() for m in (generator, critic) for p in m.parameters())
print(hashlib.sha256(bits).hexdigest())
