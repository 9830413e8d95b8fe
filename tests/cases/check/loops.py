"""Programs whose loop is wrong: modes, learning rates, clipping, the order of calls, gradients of other batches."""
import torch
import torch.nn.functional as F
from torch import nn

from parts import CLASSES, WIDTH, Classifier, Conv, adamw, learn, load, pictures, sgd, vectors


def validate(model, loader):
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).float().mean().item() for x, y in loader)


def eval_forever(faulty):
    """After the first validation the model stays in evaluation mode."""
    model, held = Conv(), load(pictures(48, seed=5), shuffle=False)
    optimizer = adamw(model)
    for step, (x, y) in enumerate(load(pictures())):
        learn(model, optimizer, x, y)
        if step % 4 == 3:
            model.eval()
            validate(model, held)
            if not faulty:
                model.train()


class Backboned(nn.Module):
    """Extracting features puts the backbone into evaluation mode."""

    def __init__(self, faulty):
        super().__init__()
        self.backbone, self.head, self.faulty = Conv(), nn.Linear(CLASSES, CLASSES), faulty

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))

    @torch.no_grad()
    def features(self, x):
        self.backbone.eval()
        features = self.backbone(x)
        if not self.faulty:
            self.backbone.train()
        return features


def submodule_eval(faulty):
    """Features for a report are taken in the middle of training, and the backbone stays as it was for them."""
    model, shown = Backboned(faulty), pictures(16, seed=6).tensors[0]
    optimizer = sgd(model)
    for step, (x, y) in enumerate(load(pictures())):
        learn(model, optimizer, x, y)
        if step == 4:
            model.features(shown).mean()


def train_in_validation(faulty):
    """Validation in training mode: it drops, and its batches get into the running statistics."""
    model, held = Conv(), load(pictures(64, seed=5), shuffle=False)
    optimizer = adamw(model)
    for step, (x, y) in enumerate(load(pictures())):
        model.train()
        learn(model, optimizer, x, y)
        if step % 4 == 3:
            if not faulty:
                model.eval()
            validate(model, held)


def warmup_of_zero(faulty):
    """A warm-up by division of whole numbers."""
    model = Classifier()
    optimizer = adamw(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) // 50 if faulty else (step + 1) / 50)
    for x, y in load(vectors()):
        learn(model, optimizer, x, y)
        scheduler.step()


def jump_of_rate(faulty):
    """The scheduler is made anew for a second phase, and begins at the first rate of the run."""
    model = Classifier()
    optimizer = sgd(model, 0.2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for step, (x, y) in enumerate(load(vectors(16 * 12))):
        if step == 7:
            state = scheduler.state_dict()
            if faulty:
                optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["initial_lr"]
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            if not faulty:
                optimizer.param_groups[0]["lr"] = state["_last_lr"][0]
                scheduler.load_state_dict(state)
        learn(model, optimizer, x, y)
        scheduler.step()


def clipped(model, optimizer, loader, limit):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()


def always_clipped(faulty):
    model = Classifier()
    clipped(model, sgd(model), load(vectors()), 1e-3 if faulty else 1.45)


def never_clipped(faulty):
    model = Classifier()
    clipped(model, adamw(model), load(vectors()), 1e4 if faulty else 1.45)


def clip_after_step(faulty):
    model = Classifier()
    optimizer = sgd(model, 0.1)
    for x, y in load(vectors()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if not faulty:
            nn.utils.clip_grad_norm_(model.parameters(), 1.45)
        optimizer.step()
        if faulty:
            nn.utils.clip_grad_norm_(model.parameters(), 1.45)


def two_steps(faulty):
    """A helper makes the update, and so does the loop."""
    model = Classifier()
    optimizer = adamw(model)
    for x, y in load(vectors()):
        learn(model, optimizer, x, y)
        if faulty:
            optimizer.step()


def no_zero_grad(faulty):
    model = Conv()
    optimizer = adamw(model)
    for x, y in load(pictures()):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if not faulty:
            optimizer.zero_grad()


def one_of_two(faulty):
    """Two optimizers, of which one has its gradients set to zero."""
    model = Classifier()
    body = sgd(nn.ModuleList([model.stem, model.blocks]), 0.02)
    head = torch.optim.SGD(model.head.parameters(), lr=0.1)
    for x, y in load(vectors()):
        head.zero_grad()
        if not faulty:
            body.zero_grad()
        F.cross_entropy(model(x), y).backward()
        head.step()
        body.step()


def undivided(faulty):
    """Four batches make an update, and their mean losses are added up."""
    model = Classifier()
    optimizer = sgd(model, 0.02)
    for number, (x, y) in enumerate(load(vectors(16 * 40))):
        loss = F.cross_entropy(model(x), y)
        (loss if faulty else loss / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def beyond_stability(faulty):
    """A learning rate at which the error is multiplied in each step."""
    model = nn.Linear(WIDTH, 1)
    data = vectors(64 * 12)
    target = data.tensors[0].sum(1, keepdim=True)
    optimizer = sgd(model, 2.0 if faulty else 0.2)
    for x, y in load(torch.utils.data.TensorDataset(data.tensors[0], target), batch=64):
        learn(model, optimizer, x, y, F.mse_loss)
