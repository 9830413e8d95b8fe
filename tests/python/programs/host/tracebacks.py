"""Prints a program's own exceptions, stack and warnings: every file, line and mark.

usage: tracebacks.py errors|frames
"""
import dataclasses
import os
import re
import sys
import tempfile
import traceback
import warnings

import torch
from torch import nn


class Leaf(nn.Module):
    def __init__(self, what=lambda: None):
        super().__init__()
        self.layer, self.what = nn.Linear(4, 4), what

    def forward(self, x):
        y = self.layer(x)
        self.what()
        return y


def nested(what=lambda: None):
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Sequential(Leaf(what), nn.Tanh())))


def raises(*given):
    raise ValueError("on purpose")


def seen(name, call):
    try:
        call()
        print(name, "did not fail")
    except BaseException as error:
        text = traceback.format_exc().split("Exception raised from")[0]  # addresses in PyTorch's libraries follow
        print(name, re.sub("0x[0-9a-f]{6,}", "ADDRESS", text))
        print("   raised while", type(error.__context__).__name__, "because of", type(error.__cause__).__name__,
              "notes", getattr(error, "__notes__", None))


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Nothing of it can be set, so that Python's own `raise ... from` is all that may change it."""
    code: int


def raises_frozen(*given):
    raise Frozen(3)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raises()


class FailsAtOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raises()


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        raises()


@torch.library.custom_op("convtrace_host::fails", mutates_args=())
def fails(x: torch.Tensor) -> torch.Tensor:
    raises()


@torch.library.custom_op("convtrace_host::passes", mutates_args=())
def passes(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


passes.register_autograd(lambda ctx, gradient: raises())


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raises()


def x():
    return torch.ones(2, 4)


def trained(model, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    model(x()).sum().backward()
    optimizer.step()
    return model


def with_hook(register, take=lambda model: model[1][1][0], raises=raises):
    model = nested()
    getattr(take(model), register)(raises)
    return lambda: trained(model)


def with_optimizer(register):
    model = nested()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    getattr(optimizer, register)(raises)
    return lambda: trained(model, optimizer)


def closure(make, raises=raises):
    model = nested()
    return lambda: make(model.parameters()).step(raises)


def not_finite():
    model = trained(nested())
    model[0].weight.grad.fill_(float("inf"))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


def no_gradient():
    output = trained(nested())(x())
    torch.autograd.grad(output.sum(), torch.ones(1, requires_grad=True))


def twice():
    output = trained(nested())(x()).sum()
    output.backward()
    output.backward()


def worker():
    loading = iter(torch.utils.data.DataLoader(Data(), num_workers=1))
    try:
        next(loading)
    finally:
        loading._shutdown_workers()


def failing_while_failing():
    try:
        nested(raises)(x())
    except ValueError:
        Fails.apply(nested()(x())).sum().backward()


def reraised():
    try:
        with_hook("register_full_backward_hook")()
    except ValueError as error:
        raise RuntimeError("not trained") from error


def errors():
    trained(nested())
    store = os.path.join(tempfile.mkdtemp(), "store")
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=0, world_size=1)
    cases = {
        "forward": lambda: nested(raises)(x()), "shapes": lambda: nested()(torch.ones(2, 5)),
        "no module": lambda: nn.Sequential(nn.Linear(4, 4), None)(x()), "not implemented": lambda: nn.Module()(x()),
        "arguments": lambda: nn.Linear(4, 4)(), "keywords": lambda: nested()(x(), scale=1),
        "exit": lambda: nested(lambda: sys.exit(3))(x()),
        "forward hook": with_hook("register_forward_hook"), "forward pre-hook": with_hook("register_forward_pre_hook"),
        "backward hook": with_hook("register_full_backward_hook"), "backward pre-hook": with_hook("register_full_backward_pre_hook"),
        "tensor hook": with_hook("register_hook", lambda model: model[0].weight),
        "accumulated": with_hook("register_post_accumulate_grad_hook", lambda model: model[0].weight),
        "function": lambda: Fails.apply(nested()(x())).sum().backward(), "forward of a function": lambda: FailsAtOnce.apply(x()),
        "grad through a function": lambda: torch.autograd.grad(Fails.apply(nested()(x().requires_grad_())).sum(), x()),
        "optimizer": lambda: trained(*(lambda model: (model, Optimizer(model.parameters(), 0.1)))(nested())),
        "optimizer's pre-hook": with_optimizer("register_step_pre_hook"), "optimizer's hook": with_optimizer("register_step_post_hook"),
        "closure": closure(lambda p: torch.optim.SGD(p, lr=0.1)), "closure of LBFGS": closure(lambda p: torch.optim.LBFGS(p)),
        "frozen in a closure": closure(lambda p: torch.optim.SGD(p, lr=0.1), raises_frozen),
        "frozen in forward": lambda: nested(raises_frozen)(x()),
        "frozen in backward": with_hook("register_hook", lambda model: model[0].weight, raises_frozen),
        "no parameters": lambda: torch.optim.Adam([]), "not a rate": lambda: torch.optim.Adam([x()], lr=-1),
        "clipping": not_finite, "grad": no_gradient, "twice": twice,
        "not a scalar": lambda: nested()(x()).backward(), "no graph": lambda: x().sum().backward(),
        "custom op": lambda: fails(x()), "backward of a custom op": lambda: passes(nested()(x())).sum().backward(),
        "loss": lambda: nn.CrossEntropyLoss()(nested()(x()), torch.zeros(3, dtype=torch.long)),
        "collective of a list": lambda: torch.distributed.all_reduce([x()]),
        "collective": lambda: torch.distributed.all_reduce(x(), op=torch.distributed.ReduceOp.BAND),
        "sizes of a collective": lambda: torch.distributed.all_gather_into_tensor(torch.ones(3), torch.ones(2)),
        "loader": lambda: next(iter(torch.utils.data.DataLoader(Data()))),
        "worker": worker,
        "state": lambda: nested().load_state_dict({"0.weight": torch.ones(3, 3)}),
        "failing while failing": failing_while_failing, "reraised": reraised,
    }
    for name, call in cases.items():
        seen(name, call)
    torch.distributed.destroy_process_group()
    trained(nested())
    Fails.apply(trained(nested())(x())).sum().backward()  # nobody catches this one


def stack():
    print("      stack", " < ".join("%s %s:%s" % (frame.name, os.path.basename(frame.filename), frame.lineno)
                              for frame in reversed(traceback.extract_stack()[:-1])))


def warned(level):
    warnings.warn("level %d" % level, stacklevel=level)


class Shows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        stack()
        for level in range(2, 5):
            warned(level)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        stack()
        warned(3)
        return gradient


class Leaves(Shows):
    @staticmethod
    def forward(x):
        return Shows.forward(None, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        stack()


@torch.library.custom_op("convtrace_host::shows", mutates_args=())
def shows(x: torch.Tensor) -> torch.Tensor:
    stack()
    warned(3)
    return x * 1


shows.register_autograd(lambda ctx, gradient: (stack(), gradient)[1])


class Shown(nn.Module):
    """Calls of custom ops, within a module."""

    def forward(self, x):
        for call in Shows.apply, Leaves.apply, shows, torch.ops.convtrace_host.shows, torch.ops.convtrace_host.shows.default:
            x = call(x)
        return x


def frames():
    """Prints the source of warnings at each level, and the stack in the program's own functions."""
    warnings.simplefilter("always")
    for level in range(2, 16):
        nested(lambda level=level: warned(level))(x())

    def hooked(*given):
        stack()
        warned(3)

    with warnings.catch_warnings():  # by the module of the frame that a level names
        warnings.filterwarnings("ignore", module=r"torch\.nn\.modules")
        for level in range(2, 16):
            nested(lambda level=level: warned(level))(x())
    nested(lambda: print([sys._getframe(level).f_globals["__name__"] for level in range(12)]))(x())

    model = nested()
    model[1][1][0].register_forward_pre_hook(hooked)
    model[1].register_forward_hook(hooked)
    model[0].register_full_backward_hook(hooked)
    model[0].weight.register_hook(hooked)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(hooked)
    optimizer.register_step_post_hook(hooked)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()  # before the optimizer's: it warns
    trained(model, optimizer)
    nn.utils.clip_grad_norm(model.parameters(), 1.0)  # deprecated
    nn.init.uniform(model[0].weight)  # deprecated
    nn.Softmax()(x())  # without a dimension
    nn.MSELoss()(model(x()), torch.ones(2, 1))  # sizes that differ
    nn.MSELoss(size_average=True)(model(x()), x())
    print(model(x()).grad)  # of a tensor that keeps none

    def evaluate():
        stack()
        return model(x()).sum()
    optimizer.step(evaluate)
    torch.optim.LBFGS(model.parameters(), max_iter=1).step(evaluate)
    torch.autograd.grad(model(x()).sum(), list(model.parameters()))
    for call in Shown(), nn.Sequential(nn.Linear(4, 4), Shown()), Shown().forward:
        call(x().requires_grad_()).sum().backward()
    torch.autograd.grad(Shown()(given := x().requires_grad_()).sum(), given)
    torch.func.grad(lambda x: Leaves.apply(x).sum())(x())


{"errors": errors, "frames": frames}[sys.argv[1]]()
