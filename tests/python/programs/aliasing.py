"""Ops that hand out memory that they do not own, or programs that look like them and are right.

usage: aliasing.py faulty|correct|million [DEVICE]
Prints the names of the cases, in order. Each faulty case has an op of its own name. Cases of NumPy are the CPU's.
"""
import ctypes
import sys
import warnings

import numpy
import torch
from torch.utils import checkpoint as checkpointing
from torch.utils import dlpack

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)
torch.manual_seed(0)
nn = torch.nn
LATE = 50


class Borrowed:
    """Memory of a GPU, offered to torch without keeping its owner alive."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "version": 3, "data": (address, False)}


def unowned(tensor, offset=0):
    """A tensor over the memory of `tensor`, from its element `offset` on, that does not own it."""
    if tensor.is_cuda:
        return torch.as_tensor(Borrowed(tensor.data_ptr() + 4 * offset, tensor.numel() - offset), device=tensor.device)
    memory = (ctypes.c_char * (4 * (tensor.numel() - offset))).from_address(tensor.data_ptr() + 4 * offset)
    return torch.frombuffer(memory, dtype=torch.float32)


def function(name, forward, backward=lambda ctx, *gradients: gradients[0]):
    return type(name, (torch.autograd.Function,),
                {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def fresh():
    return torch.randn(64, 64)


# ---- faulty: the input dies, the output is read

def freed_input(name, forward):
    op = function(name, forward)

    def case():
        result = op.apply(fresh())
        other = fresh()  # what the thread does next
        kept = result[-1] if isinstance(result, tuple) else result
        return kept.sum() + other.sum()
    return case


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor of DLPack 0.x, flat."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
                ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


DESCRIPTIONS = []  # of tensors that were lent, which consumers read until they end
CAPSULE = ctypes.pythonapi.PyCapsule_New
CAPSULE.restype, CAPSULE.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def lent(ctx, x):
    """Through DLPack, by a producer that keeps nothing alive for its consumer."""
    shape = (ctypes.c_int64 * 2)(*x.shape)
    managed = ManagedTensor(x.data_ptr(), 2 if x.is_cuda else 1, 0, 2, 2, 32, 1, shape, None, 0, None, None)
    DESCRIPTIONS.append((managed, shape))
    return dlpack.from_dlpack(CAPSULE(ctypes.addressof(managed), b"dltensor", None))


def nine(ctx, x):
    return tuple(x * i for i in range(8)) + (unowned(x),)


def gives_a_temporary():
    """The owner of the result's memory dies before the result is returned. Another tensor may then get that memory."""
    op = function("GivesTemporary", lambda ctx, x: unowned(x * 2).view(x.shape))
    for _ in range(20):
        result = op.apply(fresh())
        others = [fresh() for _ in range(1024)]
        if any(abs(other.data_ptr() - result.data_ptr()) < 4 * 64 * 64 for other in others):
            return result.sum()


def gives_a_buffer():
    """The op returns its own buffer, and replaces the buffer while its last result is still used."""
    buffers = []

    def forward(ctx, x):
        buffers[:] = [x * 2]
        return unowned(buffers[0]).view(x.shape)
    op = function("GivesBuffer", forward)
    first = op.apply(fresh())
    second = op.apply(fresh())
    return first.sum() + second.sum()


def backward_gives_its_gradient():
    op = function("GivesGradient", lambda ctx, x: x * 1,
                  lambda ctx, gradient: unowned(gradient).view(gradient.shape))
    weight = fresh().requires_grad_()
    (op.apply(weight * 2) * 3).sum().backward()
    return weight.grad


class Late(torch.autograd.Function):
    """Correct until its 51st call."""
    calls = 0

    @staticmethod
    def forward(ctx, x):
        Late.calls += 1
        return unowned(x) if Late.calls > LATE else x.clone()


def late():
    model = nn.Sequential(nn.Linear(64, 64))
    for _ in range(LATE + 1):
        y = Late.apply(model(fresh()) * 1)
        noise = fresh()
    return y.sum() + noise.sum()


library = torch.library.Library("aliasing_test", "FRAGMENT")
library.define("hidden(Tensor x) -> Tensor")
library.impl("hidden", lambda x: x, DEVICE.upper())


def schema_hides_the_argument():
    return torch.ops.aliasing_test.hidden(fresh())


def unseen(tensor):
    """@return an array or tensor with the same memory, whose writes PyTorch does not count, as those of a custom kernel."""
    return unowned(tensor).view(tensor.shape) if tensor.is_cuda else tensor.detach().numpy()


def forward_changes_its_input():
    def forward(ctx, x):
        y = x * 2
        unseen(x)[0] += 1
        return y
    return function("ChangesInput", forward).apply(fresh())


def backward_changes_its_gradient():
    def backward(ctx, gradient):
        result = gradient * 2
        unseen(gradient)[:] = 0
        return result
    op = function("ChangesGradient", lambda ctx, x: x * 2, backward)
    weight = fresh().requires_grad_()
    (op.apply(weight * 1) * 3).sum().backward()
    return weight.grad


library.define("denies(Tensor x) -> Tensor")
library.impl("denies", lambda x: x.add_(1) * 2, DEVICE.upper())


def schema_denies_a_write():
    return torch.ops.aliasing_test.denies(fresh())


FAULTY = {
    "GivesInput": freed_input("GivesInput", lambda ctx, x: unowned(x).view(x.shape)),
    "GivesInterior": freed_input("GivesInterior", lambda ctx, x: unowned(x, 512)),
    "GivesNinth": freed_input("GivesNinth", nine),
    "GivesLent": freed_input("GivesLent", lent),
    "GivesTemporary": gives_a_temporary,
    "GivesBuffer": gives_a_buffer,
    "GivesGradientBackward": backward_gives_its_gradient,
    "Late": late,
    "aliasing_test::hidden": schema_hides_the_argument,
    "ChangesInput": forward_changes_its_input,
    "ChangesGradientBackward": backward_changes_its_gradient,
    "aliasing_test::denies": schema_denies_a_write,
}


# ---- correct

def marked(ctx, x):
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


def in_place():
    op = function("InPlace", marked)
    unmarked = function("InPlaceUnmarked", lambda ctx, x: x.add_(1))
    x = fresh()
    return unmarked.apply(op.apply(x)) + x


library.define("doubles_(Tensor(a!) x, *, Tensor by) -> Tensor(a!)")
library.impl("doubles_", lambda x, by: x.mul_(by), DEVICE.upper())


def declared_write():
    """Also of what is an input twice, once declared as written."""
    x = torch.ones(64)
    torch.ops.aliasing_test.doubles_(x, by=x)
    return torch.ops.aliasing_test.doubles_(x[8:], by=torch.full((56,), 2.0))


def views():
    op = function("Views", lambda ctx, x: (x.view_as(x), *x.chunk(2), *x.split(16)))
    passing = function("Passing", lambda ctx, x: x)
    parts = op.apply(fresh())
    return passing.apply(parts[1]).sum() + fresh().sum()


def numpy_sharing():
    op = function("Numpy", lambda ctx, x: torch.from_numpy(x.numpy()))
    y = op.apply(fresh())
    other = fresh()
    z = op.apply(y)
    del y
    return z.sum() + other.sum()


def dlpack_sharing():
    op = function("Dlpack", lambda ctx, x: dlpack.from_dlpack(dlpack.to_dlpack(x)))
    first, second = fresh(), fresh()
    a, b = op.apply(first), op.apply(second)
    del first, b  # the owner first here, the borrower first there
    other = fresh()
    del a, second
    return other


def numpy_owner():
    array = numpy.ones(4096, dtype=numpy.float32)
    op = function("NumpyOwner", lambda ctx, x: torch.from_numpy(array))
    x = torch.from_numpy(array)
    y = op.apply(x)
    del x
    return y + fresh().reshape(-1)


def foreign_outputs():
    """Memory of another library, from its own allocations and from what torch freed, among torch's own."""
    op = function("Foreign", lambda ctx, x: torch.from_numpy((x * 2).numpy() + 1))
    outputs = []
    for i in range(200):
        outputs.append(op.apply(fresh()))
        fresh().add_(fresh())
        if i % 3 == 0:
            del outputs[len(outputs) // 2]
    return sum(outputs)


def kept_buffers():
    """Buffers of ops that are replaced but kept alive by the results, or viewed and then emptied as FSDP does."""
    buffers = []

    def forward(ctx, x):
        buffers[:] = [x * 2]
        return torch.from_numpy(buffers[0].numpy()), dlpack.from_dlpack(dlpack.to_dlpack(buffers[0]))
    op = function("Kept", forward)
    results = [op.apply(fresh()) for _ in range(10)]
    workspace = fresh()
    viewing = function("Viewing", lambda ctx, x: workspace[:32])
    view = viewing.apply(fresh())
    workspace.untyped_storage().resize_(0)
    others = [fresh() for _ in range(64)]
    return sum(a.sum() + b.sum() for a, b in results) + len(others) + view.numel()


def plain_sharing():
    """Outside of any op, in any order of its ends."""
    total = torch.zeros(())
    for owner_first in (True, False):
        array = numpy.ones(4096, dtype=numpy.float32)
        owners = [array, fresh(), fresh()]
        sharers = [torch.from_numpy(array), owners[1].numpy(), dlpack.from_dlpack(dlpack.to_dlpack(owners[2]))]
        del array
        first, second = (owners, sharers) if owner_first else (sharers, owners)
        while first:
            first.pop(0)
            total += fresh().sum()
        total += sum(torch.as_tensor(one).sum() for one in second)
    return total


def checkpointed():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x = fresh().requires_grad_()
    for reentrant in (True, False):
        checkpointing.checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    return x.grad


def tied_weights():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[1].weight = model[0].weight
    train(model, torch.optim.AdamW(model.parameters(), foreach=True))
    return model[0].weight


def resized_storage():
    """A parameter releases its memory and gets it back, as in FSDP."""
    model = nn.Sequential(nn.Linear(64, 64))
    flat = model[0].weight.data
    for _ in range(3):
        kept = flat.clone()
        flat.untyped_storage().resize_(0)
        taken = fresh()
        flat.untyped_storage().resize_(64 * 64 * 4)
        torch.autograd._unsafe_preserve_version_counter(flat)
        flat.copy_(kept * 0.5)
        model(fresh())
        del taken
    return flat


def flattened_lstm():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(64, 32, num_layers=2, batch_first=True)

        def forward(self, x):
            return self.lstm(x.unsqueeze(0))[0][0]
    model = Last()
    model.lstm.flatten_parameters()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True))
    return model.lstm.weight_hh_l0


def mixed_precision():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        train(model, optimizer)
    return model[0].weight


def churn():
    """One op's output over and over where another's was."""
    op = function("Doubled", lambda ctx, x: x * 2)
    total = torch.zeros(())
    for i in range(300):
        total += op.apply(torch.ones(16 * (1 + i % 7))).sum()
    for i in range(2000):
        torch.empty(64 * (1 + i % 5))
    return total


def million():
    """A million allocations and frees at the same few addresses, as fast as they go."""
    total = churn()
    for i in range(500_000):
        torch.empty(64 * (1 + i % 5))
    return total + churn()


def loader():
    """Asked for pinned memory, too, of which there is none without a GPU: a thread hands the batches on."""
    model = nn.Sequential(nn.Linear(64, 64))
    warnings.filterwarnings("ignore", ".*pin_memory.*")
    for pin in (False, True):
        with torch.device("cpu"):
            data = torch.utils.data.TensorDataset(torch.randn(64, 64), torch.randn(64, 64))
            batches = list(torch.utils.data.DataLoader(data, batch_size=16, num_workers=2, pin_memory=pin))
        for x, y in batches:
            (model(x.to(DEVICE)) - y.to(DEVICE)).square().mean().backward()
    return model[0].weight.grad


def train(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(fresh()).float().square().mean().backward()
        optimizer.step()


CORRECT = {case.__name__: case for case in (
    in_place, declared_write, views, *((numpy_sharing, numpy_owner, foreign_outputs, kept_buffers, plain_sharing) if DEVICE == "cpu" else ()),
    dlpack_sharing, checkpointed, tied_weights, resized_storage, flattened_lstm, mixed_precision, churn, loader)}


def throw_through_torch():
    """Stacks were taken, so a second unwinder may be in the process: torch's exceptions must not meet it."""
    with open("/proc/self/maps") as maps:
        print("# second unwinder:", "libunwind" in maps.read())
    try:
        torch.ones(2) + torch.ones(3)
    except RuntimeError:
        print("# a C++ exception arrived")


if __name__ == "__main__":
    for name, case in {"faulty": FAULTY, "correct": CORRECT, "million": {"million": million}}[sys.argv[1]].items():
        print(name, float(case().detach().sum()).hex())
        fresh()
    if sys.argv[1] == "faulty":
        throw_through_torch()
