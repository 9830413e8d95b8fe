"""Counts how often code of the program's own containers, classes and optimizers runs: readers that can be iterated only once,
never end or draw random numbers, properties, optimizers that return other optimizers' states, modules that keep their
parts in dictionaries of the program's classes, and classes that define their own names.

usage: containers.py
"""
import collections
import dataclasses
import io
import itertools

import torch
from torch import nn

COUNTS = collections.Counter()


class Lines(list):
    """A file, which is read once."""

    def __init__(self, text):
        self.file = io.StringIO(text)

    def __iter__(self):
        COUNTS["lines"] += 1
        return self.file


class Crops(tuple):
    """A tuple that adds random numbers whenever it is iterated."""

    def __iter__(self):
        COUNTS["crops"] += 1
        return (one + torch.randn(1) for one in super().__iter__())


class Endless(list):
    def __iter__(self):
        for _ in itertools.count():
            COUNTS["endless"] += 1
            if COUNTS["endless"] > 1000:
                raise RuntimeError("endless")
            yield torch.randn(1)


class Closed(dict):
    def values(self):
        raise OSError("closed")

    items = keys = __iter__ = __len__ = values


class Ordered(collections.OrderedDict):
    def values(self):
        COUNTS["ordered"] += 1
        return super().values()

    def items(self):
        COUNTS["ordered"] += 1
        return super().items()

    def __iter__(self):
        COUNTS["ordered"] += 1
        return super().__iter__()


class Point(collections.namedtuple("Point", "x y")):
    def __iter__(self):
        COUNTS["point"] += 1
        return super().__iter__()


@dataclasses.dataclass
class Decoded:
    image: object

    def __getattribute__(self, name):
        if name == "image":
            COUNTS["decoded"] += 1
        return super().__getattribute__(name)


class Lazy(Decoded):
    @property
    def image(self):
        COUNTS["lazy"] += 1
        return torch.rand(1)

    @image.setter
    def image(self, value):
        vars(self)["_image"] = value


@dataclasses.dataclass
class Slotted:
    __slots__ = ("image", "label")
    image: object
    label: object

    def __getattr__(self, name):
        COUNTS["slotted"] += 1
        raise RuntimeError(name)


@dataclasses.dataclass
class Bare:
    image: object

    @property
    def __dict__(self):
        COUNTS["bare"] += 1
        raise RuntimeError("no dictionary")


class Kinds(type):
    def __getattribute__(cls, name):
        if name == "__dataclass_fields__":
            COUNTS["kinds"] += 1
        return super().__getattribute__(name)

    def __eq__(cls, other):
        COUNTS["kinds =="] += 1
        return cls is other

    __hash__ = type.__hash__


class Kind(metaclass=Kinds):
    pass


class Reads(nn.Module):
    """Gives its input on as it came, and reads it at the end of the forward."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.passes = Passes()

    def forward(self, data, read):
        read = read or len
        return sum(self.linear(torch.as_tensor([float(one)])).sum() for one in read(self.passes(data)))


class Passes(nn.Module):
    @property
    def training(self):
        COUNTS["training"] += 1
        return True

    @training.setter
    def training(self, mode):
        pass

    def forward(self, data):
        return data


def read_slots(data):
    label = object.__getattribute__(data, "label")
    return [label]


def cases():
    one = torch.ones(1)
    yield "lines", lambda: Lines("1\n2\n"), list
    yield "crops", lambda: Crops([one, one]), list
    yield "endless", Endless, lambda data: itertools.islice(data, 2)
    yield "closed", lambda: Closed(one=one), lambda data: [dict.__getitem__(data, "one")]
    yield "ordered", lambda: Ordered(one=one), lambda data: [dict.__getitem__(data, "one")]
    yield "point", lambda: Point(one, one), list
    yield "decoded", lambda: Decoded(one), lambda data: [data.image]
    yield "lazy", lambda: Lazy(one), lambda data: [data.image]
    yield "slotted", lambda: Slotted(one, 2), read_slots
    yield "bare", lambda: Bare(one), lambda data: [data.image]
    yield "kind", Kind, lambda data: [1]


class Sharded(torch.optim.SGD):
    """An optimizer whose state is kept elsewhere and fetched at each access."""

    @property
    def state(self):
        COUNTS["state"] += 1
        torch.rand(1)
        return vars(self)["_state"]

    @state.setter
    def state(self, value):
        vars(self)["_state"] = value


class Wrapping(torch.optim.SGD):
    """Its groups are another optimizer's."""

    @property
    def param_groups(self):
        COUNTS["groups"] += 1
        torch.rand(1)
        return vars(self)["_groups"]

    @param_groups.setter
    def param_groups(self, value):
        vars(self)["_groups"] = value


class Raising(torch.optim.SGD):
    @property
    def state(self):
        raise RuntimeError("call gather() first")

    @state.setter
    def state(self, value):
        pass

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad * 0.1)


class Group(dict):
    def __getitem__(self, key):
        COUNTS["group"] += 1
        return super().__getitem__(key)

    def get(self, *given):
        COUNTS["group"] += 1
        return super().get(*given)

    def items(self):
        COUNTS["group"] += 1
        return super().items()

    def __len__(self):
        COUNTS["group"] += 1
        return super().__len__()


class State(collections.defaultdict):
    def get(self, *given):
        COUNTS["of a parameter"] += 1
        return super().get(*given)

    def __getitem__(self, key):
        COUNTS["of a parameter"] += 1
        return super().__getitem__(key)


class Rate(float):
    def __float__(self):
        COUNTS["rate"] += 1
        return super().__float__()


class Owned(torch.optim.SGD):
    """Its groups, states and rates are of its own classes, and it counts who asks it."""

    def __init__(self, parameters, rate):
        super().__init__(parameters, Rate(rate), momentum=0.9)
        self.param_groups = [Group(one) for one in self.param_groups]
        self.state = State(dict)

    def __getattribute__(self, name):
        COUNTS["asked for " + name] += 1
        return super().__getattribute__(name)


def train(make):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = make(model.parameters(), 0.1)
    COUNTS.clear()
    for _ in range(4):
        nn.Module.zero_grad(model)
        nn.functional.dropout(model(torch.randn(2, 3)), 0.5).sum().backward()
        optimizer.step()
    return model.weight.sum().item().hex(), sorted(COUNTS.items())


class Parts(dict):
    """The dictionary of a module's parameters, buffers or modules. Counts all calls of its methods."""


def counting(name):
    def asked(self, *given):
        COUNTS["parts " + name] += 1
        return getattr(dict, name)(self, *given)

    return asked


for method in "items", "values", "keys", "get", "__iter__", "__contains__", "__getitem__", "__len__":
    setattr(Parts, method, counting(method))


class Passing(set):
    def __contains__(self, name):
        COUNTS["passing"] += 1
        return super().__contains__(name)


class Named(type):
    """Classes that compare themselves, and whose names are made when they are asked for."""

    def __getattribute__(cls, name):
        COUNTS["class " + name] += 1
        return super().__getattribute__(name)

    def __eq__(cls, other):
        COUNTS["class =="] += 1
        return cls is other

    def __hash__(cls):
        COUNTS["class hash"] += 1
        return type.__hash__(cls)


class Layer(nn.BatchNorm1d, metaclass=Named):
    pass


class Holder(nn.Module, metaclass=Named):
    def __init__(self):
        super().__init__()
        self.module = nn.Sequential(nn.Linear(3, 3), Layer(3), nn.Linear(3, 1))
        self.kind = Layer

    def forward(self, x):
        return self.module(x)


class Stepped(torch.optim.SGD, metaclass=Named):
    pass


class Weight(nn.Parameter, metaclass=type("KindOfWeight", (Named, type(nn.Parameter)), {})):
    pass


def parts():
    """Trains a model of such parts by an optimizer of such a class, then without one."""
    torch.manual_seed(0)
    model = Holder()
    model.module[2].weight = Weight(model.module[2].weight.detach())
    for module in list(model.modules()):
        for name in "_parameters", "_buffers", "_modules":
            vars(module)[name] = Parts(getattr(module, name))
        vars(module)["_non_persistent_buffers_set"] = Passing(module._non_persistent_buffers_set)
    optimizer = Stepped(model.parameters(), 0.1)
    COUNTS.clear()
    for step in range(6):
        model.zero_grad()
        model(torch.randn(4, 3)).sum().backward()
        if step < 4:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        else:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
    model.eval()(torch.ones(1, 3))
    return model.module[0].weight.sum().item().hex(), sorted(COUNTS.items())


class Unready(nn.Module):
    """Has not called Module's __init__."""

    def __init__(self):
        pass

    def __getattr__(self, name):
        COUNTS[name] += 1
        return super().__getattr__(name)

    def forward(self, x):
        return x


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.unready = nn.Linear(3, 1), Unready()

    def forward(self, x):
        return self.linear(x)


def unready():
    """Trains beside such a module, and calls what is none, or not yet."""
    torch.manual_seed(0)
    model = Holding()
    optimizer = torch.optim.SGD(model.linear.parameters(), 0.1)
    COUNTS.clear()
    said = collections.Counter()
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        for call in (lambda: nn.Module.__call__(5, 1), lambda: Unready()(1), lambda: object.__new__(nn.Linear)(1),
                     lambda: nn.Sequential(Unready())(1)):
            try:
                call()
            except AttributeError as error:
                said[str(error)] += 1
    return model.linear.weight.sum().item().hex(), sorted(COUNTS.items()), sorted(said.items())


for name, make, read in cases():
    torch.manual_seed(0)
    COUNTS.clear()
    model = Reads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(make(), read)
        loss.backward()
        optimizer.step()
        print(name, loss.item().hex(), sorted(COUNTS.items()), torch.rand(1).item().hex())
for kind in Sharded, Wrapping, Raising, Owned:
    print(kind.__name__, *train(kind))
print("parts", *parts())
print("unready", *unready())
train(torch.optim.SGD)
