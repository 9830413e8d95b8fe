"""Habits of training scripts that examples lack. Prints a digest of each one's results.

usage: unusual.py
"""
import copy
import hashlib
import pickle
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, rnn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

warnings.simplefilter("ignore")  # of interfaces that PyTorch is about to remove


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def batch():
    return torch.randn(4, 6)


def state(model):
    return [tensor for _, tensor in sorted(model.state_dict().items()) if isinstance(tensor, torch.Tensor)]


def train(model, loss=lambda model, x: model(x).square().mean(), optimizer=None, data=batch):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        loss(model, data()).backward()
        optimizer.step()
    return state(model)


def clipped():
    def loss(model, x):
        value = model(x).square().mean()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return model(x).square().mean()
    return train(mlp(), loss)


def closure():
    model, x = mlp(), batch()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def evaluate():
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        return value
    for _ in range(2):
        optimizer.step(evaluate)
    return state(model)


def sharpness_aware():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        x = batch()
        model(x).square().mean().backward()
        with torch.no_grad():
            moved = [0.05 * parameter.grad for parameter in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moved)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moved)
        optimizer.step()
        optimizer.zero_grad()
    return state(model)


def averaged():
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)
    train(model, lambda model, x: model(x).mean() + 0 * average(x).mean().detach())
    average.update_parameters(model)
    return state(average)


def gradient_penalty():
    def loss(model, x):
        x.requires_grad_()
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (gradient.norm(dim=1) - 1).square().mean()
    return train(mlp(), loss)


def several_backwards():
    def loss(model, x):
        y = model(x)
        y[:, 0].mean().backward(retain_graph=True)
        torch.autograd.backward([y[:, 1].mean(), y[:, 2].mean()], retain_graph=True)
        return y.mean()
    return train(mlp(), loss)


def functional():
    model = mlp()
    weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    for _ in range(3):
        x, leaves = batch(), {name: tensor.requires_grad_() for name, tensor in weights.items()}
        value = torch.func.functional_call(model, leaves, (x,)).square().mean()
        gradients = torch.autograd.grad(value, list(leaves.values()))
        weights = {name: (tensor - 0.1 * g).detach() for (name, tensor), g in zip(leaves.items(), gradients)}
    return list(weights.values())


def by_hand():
    model = mlp()
    for _ in range(3):
        model.zero_grad()
        model(batch()).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    return state(model)


def inside_backward():
    model = mlp()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        model(batch()).square().mean().backward()
    return state(model)


def offloaded():
    def loss(model, x):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: kept.append(tensor.clone()) or len(kept) - 1, lambda index: kept[index]):
            return model(x).square().mean()
    return train(mlp(), loss)


def hooked():
    model, seen = mlp(), []
    model[0].register_full_backward_hook(lambda module, given, taken: seen.append(taken[0].sum()))
    model[2].register_full_backward_pre_hook(lambda module, taken: seen.append(taken[0].sum()))
    model[1].register_forward_hook(lambda module, given, output: output * 1.5)
    model[0].register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    model[0].weight.register_hook(lambda gradient: gradient * 2)
    return train(model, lambda model, x: model(x.requires_grad_()).mean()) + seen


def hooks_that_raise():
    model, seen = mlp(), []

    def raises(*given):
        raise ValueError("on purpose")
    for register in (model[1].register_forward_hook, model[1].register_full_backward_hook):
        handle = register(raises)
        try:
            model(batch()).sum().backward()
        except ValueError as error:
            seen.append(str(error))
        handle.remove()
    model.zero_grad()
    return train(model) + seen


class Called(nn.Linear):
    def __call__(self, x, scale=1.0):
        return super().__call__(x * scale) + 1


def overridden_call():
    return train(nn.Sequential(Called(6, 6), Called(6, 2)))


def packed():
    model = nn.LSTM(6, 5, batch_first=True)

    def loss(model, x):
        output, (hidden, _) = model(rnn.pack_padded_sequence(x, [4, 3, 2], batch_first=True))
        return output.data.square().mean() + hidden.mean()
    return train(model, loss, data=lambda: torch.randn(3, 4, 6))


def reparametrized():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 8)), parametrizations.spectral_norm(nn.Linear(8, 6)),
                          nn.Linear(6, 3))
    prune.l1_unstructured(model[2], "weight", 0.3)
    return train(model)


class Experts(nn.Module):
    """Modules that are called now and then, on parts of a batch that may be empty."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        y = x.new_zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            rows = (shares.argmax(-1) == number).nonzero().flatten()
            if len(rows) or number == 0:
                y = y.index_add(0, rows, expert(x[rows]) * shares[rows, number:number + 1])
        return y


def experts():
    return train(Experts())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.embedding(ids))


def tied():
    return train(Tied(), data=lambda: torch.randint(7, (3, 4)))


def lazy():
    model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    model(batch())
    return train(model)


def compiled_by_jit():
    return train(torch.jit.trace(mlp(), batch())) + train(nn.Sequential(nn.Linear(6, 6), torch.jit.script(mlp())))


def quantized():
    model = torch.ao.quantization.quantize_dynamic(mlp(), {nn.Linear}, dtype=torch.qint8)
    return [model(batch()) for _ in range(3)]


def checkpointed():
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)])
    nested = lambda model, x: checkpoint(
        lambda y: checkpoint(model[1], model[0](y), use_reentrant=False), x, use_reentrant=False).mean()
    reentrant = lambda model, x: checkpoint_sequential(model, 3, x.requires_grad_(), use_reentrant=True).mean()
    return train(layers, nested) + train(layers, reentrant)


def copied():
    model = mlp()
    train(model)
    return train(copy.deepcopy(model)) + train(pickle.loads(pickle.dumps(model)))


def changed_under_way():
    model = mlp()
    train(model)
    model[2] = nn.Linear(8, 5)
    train(model)
    model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)
    return train(model.double(), data=lambda: batch().double())


def weights_in_a_forward():
    class Maker(nn.Module):
        def __init__(self):
            super().__init__()
            self.maker = nn.Linear(6, 18)

        def forward(self, x):
            made = nn.Linear(6, 3, bias=False)
            del made.weight
            made.weight = self.maker(x.mean(0)).view(3, 6)
            return made(x)
    return train(Maker())


def lying_otherwise():
    """Expanded, transposed, empty, complex, shared between processes."""
    model = mlp()
    model.share_memory()
    parts = lambda model, x: (model(x[:1].expand(4, 6)) + model(torch.randn(6, 8).t()[::2])).mean() + model(x[:0]).sum()
    return train(model, parts) + [torch.view_as_real(nn.Linear(6, 3, dtype=torch.complex64)(batch() * 1j))]


CASES = (clipped, closure, sharpness_aware, averaged, gradient_penalty, several_backwards, functional, by_hand, inside_backward,
         offloaded, hooked, hooks_that_raise, overridden_call, packed, reparametrized, experts, tied, lazy, compiled_by_jit,
         quantized, checkpointed, copied, changed_under_way, weights_in_a_forward, lying_otherwise)


def digest(items):
    sha = hashlib.sha256()
    for item in items:
        if isinstance(item, torch.Tensor):
            item = item.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        sha.update(item if isinstance(item, bytes) else str(item).encode())
    return sha.hexdigest()[:16]


for number, case in enumerate(CASES):
    torch.manual_seed(number)
    print(case.__name__, digest(case() + [torch.get_rng_state()]))
