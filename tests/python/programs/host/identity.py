"""All that a program can ask of its own objects after it has trained: weak references, attributes, classes, hooks, counts
of references, what is pickled and saved, tensors that are swapped, objects that die.

usage: identity.py
"""
import copy
import gc
import hashlib
import io
import pickle
import sys
import weakref

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Tagged(torch.Tensor):
    """A subclass, as quantised and distributed parameters are."""

    def __deepcopy__(self, memo):
        memo[id(self)] = nn.Parameter(self.detach().clone().as_subclass(Tagged), self.requires_grad)
        return memo[id(self)]


class Symmetric(nn.Module):
    def forward(self, x):
        return x + x.t()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.lazy, self.norm = nn.LazyLinear(6), nn.BatchNorm1d(6)
        self.symmetric = nn.Linear(6, 6)
        parametrize.register_parametrization(self.symmetric, "weight", Symmetric())
        self.tagged = nn.Parameter(torch.randn(6).as_subclass(Tagged))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, ids):
        x = self.symmetric(self.norm(self.lazy(self.embedding(ids))))
        return self.head(Double.apply(self.frozen(x) * self.tagged.as_subclass(torch.Tensor)))


def digest(data):
    return "%d bytes, %s" % (len(data), hashlib.sha256(data).hexdigest()[:16])


class Pickler(pickle.Pickler):
    """Pickles a storage by its content, since PyTorch's pickle contains its address."""

    def persistent_id(self, item):
        if isinstance(item, torch.storage.TypedStorage):
            return digest(torch.empty(0, dtype=torch.uint8).set_(item._untyped_storage).numpy().tobytes())


def pickled(item):
    buffer = io.BytesIO()
    Pickler(buffer).dump(item)
    return digest(buffer.getvalue())


def saved(item):
    buffer = io.BytesIO()
    torch.save(item, buffer)
    return digest(buffer.getvalue())


def hooks_of(item):
    """Dictionaries of hooks: how many there are, or that there is none."""
    found = {}
    for name in dir(type(item)) + list(getattr(item, "__dict__", ())):
        if "hooks" in name and not callable(getattr(item, name, None)):
            value = getattr(item, name)
            found[name] = value if value is None or isinstance(value, bool) else [
                getattr(hook, "__qualname__", type(hook).__name__) for hook in value.values()]
    return sorted(found.items())


def ask(name, item):
    # The count of references is that of the caller's name, this one and the call's argument, and whoever else has it.
    print(name, type(item).__module__, type(item).__qualname__, "weak", weakref.getweakrefcount(item), "references",
          sys.getrefcount(item))
    print("   attributes", sorted(getattr(item, "__dict__", ())), "hooks", hooks_of(item))


def ask_tensor(name, tensor):
    ask(name, tensor)
    if type(tensor) is not nn.parameter.UninitializedParameter:
        storage = tensor.untyped_storage()
        print("   storage weak", weakref.getweakrefcount(storage), "references", sys.getrefcount(storage), "attributes",
              sorted(vars(storage)) if hasattr(storage, "__dict__") else None, "version", tensor._version)
        del storage
    node = tensor.grad_fn
    if node is not None:
        print("   node", node.name(), "metadata", dict(node.metadata), "next", [n and n.name() for n, _ in node.next_functions])


def ask_all(model, optimizer):
    for name, module in model.named_modules():
        ask("module " + name, module)
    for name, parameter in model.named_parameters():
        ask_tensor("parameter " + name, parameter)
        if parameter.grad is not None:
            ask_tensor("gradient " + name, parameter.grad)
    for name, buffer in model.named_buffers():
        ask_tensor("buffer " + name, buffer)
    ask("optimizer", optimizer)
    print("   state", [sorted(state) for state in optimizer.state.values()], [sorted(g) for g in optimizer.param_groups])
    for state in optimizer.state.values():
        for key, value in sorted(state.items()):
            if isinstance(value, torch.Tensor):
                ask_tensor("state " + key, value)


def train(make):
    torch.manual_seed(0)
    model, criterion = Model(), nn.CrossEntropyLoss()
    ids = torch.randint(7, (8,))
    ask_all(model, make([nn.Parameter(torch.zeros(1))]))
    model(ids)
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(3):
        optimizer.zero_grad()
        output = model(ids)
        loss = criterion(output, ids)
        loss.backward()
        optimizer.step()
        scheduler.step()
        ask_tensor("output", output)
        ask_tensor("loss", loss)
        print("loss", loss.item().hex())
    for name, item in ("criterion", criterion), ("scheduler", scheduler):
        ask(name, item)
    ask_all(model, optimizer)
    parts = nn.ModuleList([model.embedding, model.head, model.lazy, model.norm, model.frozen])  # what is parametrized refuses
    for name, item in (("model", parts), ("state", model.state_dict()), ("optimizer", optimizer), ("scheduler", scheduler.state_dict()),
                       ("state of the optimizer", optimizer.state_dict()), ("output", output.detach()), ("criterion", criterion)):
        print("stored", name, "pickled", pickled(item), "saved", saved(item), "copied", pickled(copy.deepcopy(item)))
    ask_all(copy.deepcopy(model), copy.copy(optimizer))
    for item in [*model.parameters(), model.head, model.symmetric, criterion, optimizer]:
        print("referrers", sorted(type(one).__name__ for one in gc.get_referrers(item)))
    return model, optimizer, ids


def die(model, optimizer, ids):
    """Unreferenced objects die at once, without the garbage collector."""
    gc.collect()
    gc.disable()
    output = model(ids)
    loss = output.sum()
    loss.backward()
    mine = {"output": weakref.ref(output), "loss": weakref.ref(loss),
            "storage": weakref.ref(output.untyped_storage()), "gradient": weakref.ref(model.head.weight.grad)}
    del output, loss
    optimizer.zero_grad()
    print("dead", {name: reference() is None for name, reference in mine.items()})
    small = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    steps = torch.optim.Adam(small.parameters())
    small(torch.ones(2, 4)).sum().backward()
    steps.step()
    mine = {"model": weakref.ref(small), "layer": weakref.ref(small[0]), "weight": weakref.ref(small[0].weight)}
    order = []
    for name, item in ("model", small), ("layer", small[0]), ("weight", small[0].weight), ("last", small[2].bias):
        weakref.finalize(item, order.append, name)
    del small, steps, item
    print("dead without optimizer", {name: reference() is None for name, reference in mine.items()}, order)
    gc.enable()
    gc.collect()
    print("dead behind the collector", {name: reference() is None for name, reference in mine.items()}, order)


class Watched(nn.Linear):
    """Its attributes are read by code of the program."""

    def __getattribute__(self, name):
        asked[name] = asked.get(name, 0) + 1
        return super().__getattribute__(name)


asked = {}


def watched():
    model = Watched(4, 4)
    model.register_buffer("count", torch.zeros(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print("asked", sorted(asked.items()))


def tried(name, call):
    try:
        print(name, call())
    except Exception as error:  # what fails in the plain program, too, is as good as what does not
        print(name, type(error).__name__, str(error).splitlines()[0])


def swapped(model):
    """Tensors exchange what they are, which weak references to them forbid."""
    def exchanged(a, b):
        before = a.flatten()[0].item(), b.flatten()[0].item()
        torch.utils.swap_tensors(a, b)
        return (b.flatten()[0].item(), a.flatten()[0].item()) == before, a.shape, b.shape

    tried("swapped parameters", lambda: exchanged(model.frozen.weight, model.norm.weight))
    tried("swapped back", lambda: exchanged(model.frozen.weight, model.norm.weight))
    tried("swapped inputs", lambda: exchanged(torch.zeros(3), torch.ones(2)))
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    y = layer(x).detach()
    layer(x).sum().backward()
    tried("swapped a used input", lambda: exchanged(x, y))
    tried("swapped gradients", lambda: exchanged(layer.weight.grad, layer.bias.grad))
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        for name, convert in (("double", lambda m: m.double()), ("cpu", lambda m: m.to("cpu")), ("half", lambda m: m.half()),
                              ("float", lambda m: m.float()), ("apply", lambda m: m._apply(lambda t: t.clone()))):
            one = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                one(torch.ones(3, 4)).sum().backward()
                optimizer.step()
            optimizer.zero_grad()
            before = [id(parameter) for parameter in one.parameters()]
            tried("swapped by " + name, lambda convert=convert, one=one, before=before: (
                convert(one)[0].weight.dtype, before == [id(p) for p in one.parameters()]))
        tried("swapped by load_state_dict", lambda: one.load_state_dict({k: v + 1 for k, v in one.state_dict().items()}))
        tried("trained on", lambda: one(torch.ones(3, 4)).sum().item().hex())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    tried("converted", lambda: [(name, p.dtype, type(p).__name__) for name, p in model.double().to("cpu").named_parameters()])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index))


def definitions():
    """What the program has defined and not made: Functions, custom ops, data sets, classes and their methods."""
    library = torch.library.Library("identity", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    op = torch.ops.identity.twice
    data = Numbers()
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    layer = nn.Linear(4, 4)
    for x in loader:
        output = op.default(op(Double.apply(layer(x)).detach()))
    for name, item in (("Function", Double), ("forward", Double.forward), ("backward", Double.backward),
                       ("class of nodes", Double._backward_cls), ("packet", op), ("overload", op.default), ("data", data),
                       ("loader", loader), ("layer's class", nn.Linear), ("layer's forward", nn.Linear.forward), ("output", output),
                       ("code", Double.backward.__code__)):
        ask(name, item)
    call = nn.Module.__call__
    print("call of modules", call is nn.Module._wrapped_call_impl, pickle.loads(pickle.dumps(call)) is call)


layer = nn.Linear(1, 1)
handle = layer.register_forward_hook(print)
print("first hook", handle.id, list(handle.hooks_dict_ref()))
handle = register_optimizer_step_pre_hook(lambda *given: None)
print("first hook of optimizers", handle.id)
handle.remove()
watched()
definitions()
for make in lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p, lr=0.01):
    trained = train(make)
    die(*trained)
    swapped(trained[0])
