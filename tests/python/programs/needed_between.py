"""Losses, weights and packed tensors that are written between the forward and the backward pass, or only look alike
(needed_cases.py)."""
import copy
import ctypes
import threading

import torch
from needed_cases import Block, Inside, case, main, named, raw, train
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


def scored(loss_of, before=lambda scores: None, behind=lambda scores: None, targets=None):
    """Trains a model whose scores go to the function `before`, to a loss, and to the function `behind`."""
    def loss(scores):
        before(scores)
        value = loss_of(scores, torch.full_like(scores, 0.5) if targets is None else targets)
        behind(scores)
        return value

    model = Block(lambda h: h.tanh())
    train(model, model.parameters(), loss_of=loss)


def masked(scores):
    raw(scores).masked_fill_(raw(scores) < -0.1, 0.)


@case
def wrong_scores_of_elements():
    scored(lambda y, t: (nn.functional.smooth_l1_loss(y, t, reduction="none").mean() + nn.functional.mse_loss(y, t, reduction="sum")) * 128,
           behind=masked)


@case
def wrong_scores_of_huber():
    scored(lambda y, t: nn.functional.huber_loss(y, t, delta=0.3), behind=lambda y: y.detach().numpy().sort(), targets=torch.randn(6, 4))


@case
def right_scores_masked_before():
    """The loss has the masked scores, and its gradient is taken there."""
    functional = nn.functional
    scored(functional.mse_loss, masked)
    scored(lambda y, t: functional.huber_loss(y, t, delta=0.3) / 4, masked)
    scored(lambda y, t: functional.smooth_l1_loss(y, t, reduction="none").sum() * torch.tensor(0.1) + functional.mse_loss(y, t), masked)
    scored(lambda y, t: functional.binary_cross_entropy_with_logits(y, t, pos_weight=torch.full((4,), 3.)), masked)
    scored(lambda y, t: functional.binary_cross_entropy(y.sigmoid(), t, torch.rand(6, 4)), masked)
    scored(lambda y, t: functional.soft_margin_loss(y, t.sign()), masked)


@case
def right_scores_masked_before_a_sum():
    """Parts of the sum are no losses of scores."""
    scored(lambda y, t: nn.functional.mse_loss(y, t) + 0.1 * y.abs().mean() + 1, masked)
    scored(lambda y, t: (nn.functional.mse_loss(y, t) - 0.5).exp(), masked)
    scored(lambda y, t: nn.functional.mse_loss(y.double(), t.double()).float(), masked)


@case
def right_value_of_a_loss_written():
    """A number for a log is made in the memory of the loss, whose value no backward reads."""
    def loss(y, t):
        value = nn.functional.mse_loss(y, t)
        raw(value).mul_(0.25)
        return value

    scored(loss)


@case
def right_scores_of_a_loss_on_a_thread():
    """The backward pass begins with another number of threads than the loss had."""
    def loss(y, t):
        torch.set_num_threads(2)
        value = nn.functional.mse_loss(y, t)
        torch.set_num_threads(1)
        return value

    scored(loss, masked)


@case
def right_random_numbers():
    """The losses are computed again without a random number, and in the program's own modes."""
    with torch.autograd.detect_anomaly(check_nan=False), torch.random.fork_rng():
        scored(lambda y, t: nn.functional.mse_loss(nn.functional.dropout(y, 0.5), t), masked)


def halved(module):
    for parameter in module.parameters():
        raw(parameter).mul_(0.5)


@case
def wrong_weight_of_a_layer():
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    train(model, model.parameters(), between=lambda: halved(model[2]))


@case
def wrong_weight_of_a_convolution():
    model = named(nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 3), nn.GELU(), nn.Conv1d(3, 2, 2), nn.Flatten()))

    def clip():
        array = model[3].weight.detach().numpy()
        array.clip(-0.05, 0.05, out=array)

    train(model, model.parameters(), between=clip)


@case
def wrong_weight_of_a_function():
    weight = nn.Parameter(torch.randn(8, 8) / 3)

    def zero():
        ctypes.memset(weight.data_ptr(), 0, 32)

    model = named(nn.Sequential(nn.Linear(8, 8), Inside(lambda h: nn.functional.linear(h.sin(), weight)), nn.Linear(8, 4)))
    train(model, [*model.parameters(), weight], between=zero)


class Normed(nn.Linear):
    def forward(self, x):
        norm = raw(self.weight).norm(dim=1, keepdim=True)
        raw(self.weight).div_(norm.sqrt())
        return super().forward(x)


@case
def wrong_weight_between_calls():
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), Normed(8, 4, bias=False)))
    train(lambda x: model(x) + model(-x), model.parameters())


@case
def right_weight_before_the_forward():
    """Binary weights in the forward and the backward pass, the real ones behind it; and weights that are clipped there."""
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        for parameter in model.parameters():
            raw(parameter).sign_().mul_(0.1)
        loss = model(torch.randn(6, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter, one in zip(model.parameters(), kept):
            raw(parameter).copy_(one)
        optimizer.step()
        for parameter in model.parameters():
            raw(parameter).clamp_(-0.2, 0.2)


@case
def right_weight_that_no_backward_reads():
    """The first layer's input needs no gradient."""
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    train(model, model.parameters(), between=lambda: halved(model[0]))
    other = named(nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 3), nn.Flatten()))
    train(other, other.parameters(), between=lambda: halved(other))


@case
def right_weight_updated_in_the_backward():
    """Each weight is updated when its gradient is there; one is used in two calls."""
    shared = nn.Linear(8, 8)
    model = named(nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(8, 4)))

    def update(parameter):
        raw(parameter).sub_(parameter.grad, alpha=0.05)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        model(torch.randn(6, 8)).square().mean().backward()


@case
def right_weight_of_another_thread():
    """Threads that train shared weights without a lock; and other memory that the parameter gets before the backward pass."""
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))).share_memory()

    def other():
        thread = threading.Thread(target=halved, args=(model,))
        thread.start()
        thread.join()

    train(model, model.parameters(), between=other)


@case
def right_weight_in_other_memory():
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))

    def move():
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()

    average = copy.deepcopy(model)
    train(model, model.parameters(), between=lambda: (move(), halved(average)))


def hooked(act, hook):
    model = named(nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)))
    model[1].register_forward_hook(hook)
    return model


def sort_rows(module, args, out):
    """A look at percentiles, in the output's own memory."""
    out.detach().numpy().sort()


@case
def wrong_hook_that_sorts():
    model = hooked(nn.Tanh(), sort_rows)
    train(model, model.parameters())


@case
def wrong_hook_that_rounds():
    model = hooked(nn.Sigmoid(), lambda module, args, out: (raw(out).round_(), None)[1])
    train(model, model.parameters())


@case
def wrong_hook_with_arguments():
    model = hooked(nn.Softmax(1), lambda module, args, out: None)
    model[1].register_forward_hook(lambda module, args, kwargs, out: (raw(out).masked_fill_(raw(out) < 0.1, 0.), None)[1], with_kwargs=True)
    train(model, model.parameters())


@case
def right_hook_that_only_looks():
    model = hooked(nn.Tanh(), lambda module, args, out: out.detach().numpy().copy().sort())
    train(model, model.parameters())


@case
def right_hook_that_returns():
    model = hooked(nn.Sigmoid(), lambda module, args, out: out + (out.round() - out).detach())
    train(model, model.parameters())


@case
def right_hook_of_what_is_not_saved():
    """Neither a layer nor a ReLU needs the values of its output, and the layer behind it takes the new ones."""
    model = hooked(nn.Linear(8, 8), sort_rows)
    model[3].register_forward_hook(lambda module, args, out: (raw(out).mul_(0.5), None)[1])
    train(model, model.parameters())


@case
def right_hook_that_raises():
    """The step is done again without it."""
    model, left = hooked(nn.Tanh(), lambda module, args, out: None), [1]

    def fail(module, args, out):
        if left:
            left.pop()
            raise ValueError

    model[1].register_forward_hook(fail)
    model[1].register_forward_hook(lambda module, args, out: None, always_call=True)
    try:
        train(model, model.parameters())
    except ValueError:
        train(model, model.parameters())
    assert not nn.modules.module._global_forward_hooks


@case
def right_hook_that_needs_no_gradient():
    model = hooked(nn.Tanh(), sort_rows)

    def forward(x):
        with torch.no_grad():
            h = model[:2](x)
        return model[2:](h)

    train(forward, model[2:].parameters())


class Ring:
    """Packs what is saved into buffers that are used in turn."""

    def __init__(self, slots, kept=lambda slot, tensor: slot):
        self.slots, self.turn, self.kept = {}, {}, kept
        self.count = slots

    def pack(self, tensor):
        if tensor.is_leaf or tensor.shape != (6, 8):
            return tensor
        ring = self.slots.setdefault(tensor.shape, [torch.empty(tensor.shape) for _ in range(self.count)])
        self.turn[tensor.shape] = self.turn.get(tensor.shape, -1) + 1
        slot = ring[self.turn[tensor.shape] % len(ring)]
        slot.copy_(tensor.detach())
        return self.kept(slot, tensor)

    def unpack(self, kept):
        return kept[0].view(kept[1]) if type(kept) is tuple else kept


def packed(pool, model=None):
    model = model or named(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)))

    def forward(x):
        with saved_tensors_hooks(pool.pack, pool.unpack):
            return model(x)

    train(forward, model.parameters())


@case
def wrong_ring_of_packed():
    packed(Ring(2))


@case
def wrong_ring_of_pairs():
    packed(Ring(3, lambda slot, tensor: (slot, tensor.shape)))


@case
def wrong_buffer_of_packed():
    """Modules of the program, with one buffer for what their functions save."""
    packed(Ring(1), named(nn.Sequential(nn.Linear(8, 8), Inside(torch.sigmoid), nn.Linear(8, 8), Inside(torch.tanh), nn.Linear(8, 4))))


@case
def right_ring_of_packed():
    packed(Ring(64))


class Pool(Ring):
    """A buffer is free again when it was unpacked."""

    def __init__(self):
        self.free, self.used = [], []

    def pack(self, tensor):
        if tensor.is_leaf:
            return tensor
        slot = self.free.pop() if self.free and self.free[-1].shape == tensor.shape else torch.empty(tensor.shape)
        return slot.copy_(tensor.detach())

    def unpack(self, kept):
        if kept.is_leaf and kept.requires_grad:
            return kept
        self.free.append(kept)
        return kept.clone()


@case
def right_pool_of_packed():
    packed(Pool())


@case
def right_hooks_of_torch():
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4)))

    def forward(x):
        with torch.autograd.graph.save_on_cpu():
            return model(x)

    train(forward, model.parameters())
    train(lambda x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False), model.parameters())


class Late(Ring):
    """Buffers are filled when the forward pass has ended, as by a thread that copies."""

    def __init__(self):
        self.waiting = []

    def pack(self, tensor):
        slot = torch.zeros(tensor.shape)
        self.waiting.append((slot, tensor.detach()))
        return slot

    def unpack(self, kept):
        while self.waiting:
            slot, tensor = self.waiting.pop()
            slot.copy_(tensor)
        return kept


@case
def right_packed_late():
    pool = Late()
    packed(pool)


@case
def right_packed_once():
    """What two nodes save is packed once, and a part of a saved tensor is dropped that no backward reads."""
    class Once(Ring):
        def __init__(self):
            self.seen = {}

        def pack(self, tensor):
            key = tensor.data_ptr(), tensor._version, tensor.shape
            if key not in self.seen:
                self.seen[key] = tensor.detach().clone(), tensor
            return self.seen[key][0]

    packed(Once())


class Sigmoid(torch.autograd.Function):
    """Keeps its result in a block of memory that `take()` wraps into a tensor of its own."""

    @staticmethod
    def forward(ctx, x, keep, take, give):
        block = take()
        raw(block).copy_(x.sigmoid())
        ctx.kept, ctx.give = keep(block), give
        return block.clone()

    @staticmethod
    def backward(ctx, grad):
        block = ctx.kept if isinstance(ctx.kept, torch.Tensor) else ctx.kept[0]
        result = grad * block * (1 - block)
        ctx.give(block)
        return result, None, None, None


def pooled(take, keep=lambda block: block, give=lambda block: None):
    def act():
        return Inside(lambda h: Sigmoid.apply(h, keep, take, give))

    model = named(nn.Sequential(nn.Linear(8, 8), act(), nn.Linear(8, 8), act(), nn.Linear(8, 4)))
    train(model, model.parameters())


@case
def wrong_block_of_an_array():
    array = torch.zeros(6, 8).numpy()
    pooled(lambda: torch.from_numpy(array))


@case
def wrong_block_in_a_list():
    array = torch.zeros(6, 8).numpy()
    pooled(lambda: torch.from_numpy(array), keep=lambda block: [block, block.shape])


@case
def wrong_block_of_bytes():
    """The second of two blocks is used again in the same step."""
    data = bytearray(6 * 8 * 4 * 2)
    offsets = iter([0, 192, *[192] * 16])
    pooled(lambda: torch.frombuffer(data, dtype=torch.float32, count=48, offset=next(offsets)).view(6, 8))


@case
def wrong_block_across():
    """The second of two blocks begins in the middle of the first one."""
    data = bytearray(6 * 8 * 4 * 2)
    offsets = iter([0, 96] * 8)
    pooled(lambda: torch.frombuffer(data, dtype=torch.float32, count=48, offset=next(offsets)).view(6, 8))


@case
def right_block_given_back():
    free = [torch.zeros(6, 8).numpy() for _ in range(2)]
    pooled(lambda: torch.from_numpy(free.pop()), give=lambda block: free.append(block.numpy()))


@case
def right_blocks_side_by_side():
    data, turns = torch.zeros(2, 6, 8).numpy(), []
    pooled(lambda: turns.append(1) or torch.from_numpy(data[len(turns) % 2]))


@case
def right_block_that_is_new():
    pooled(lambda: torch.from_numpy(torch.zeros(6, 8).numpy()))


@case
def right_block_of_one_call():
    """Each step has one call, and all have one block."""
    array = torch.zeros(6, 8).numpy()
    model = Block(lambda h: Sigmoid.apply(h, lambda block: (block,), lambda: torch.from_numpy(array), lambda block: None))
    train(model, model.parameters())


@case
def right_block_of_constants():
    """Two calls keep one table in tensors of their own, which nobody writes; a third one keeps other rows of it."""
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.scale, None

    table = torch.rand(9, 8).numpy()
    model = Block(lambda h: Scaled.apply(Scaled.apply(Scaled.apply(h, torch.from_numpy(table[:6])), torch.from_numpy(table[:6])),
                                         torch.from_numpy(table[3:])))
    train(model, model.parameters())


if __name__ == "__main__":
    main()
