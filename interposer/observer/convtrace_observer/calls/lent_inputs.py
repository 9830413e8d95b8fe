"""Memory that others than torch can write (an array of NumPy, a buffer of a loader): whether the backward pass finds in it
what the forward pass has left there. PyTorch counts no write to it that does not go through a tensor. That NumPy has a
tensor's memory, torch notes on the storage, for good.
"""

from ..base import contents, engine, own, values
from . import reused_outputs

_MOST = 64  # tensors of one step
_MOST_EXPOSED = 1 << 12  # outputs of modules

# Nodes whose backward computes with the values of what they save: node -> (name of that tensor, whether it is the node's
# own output). What only gives a shape or a sign (pooling, ReLU) may change without harm.
_NEEDED = {
    **dict.fromkeys(("ExpBackward0", "SigmoidBackward0", "SoftmaxBackward0", "LogSoftmaxBackward0", "TanhBackward0"),
                    ("result", True)),
    **dict.fromkeys(("ConvolutionBackward0", "NativeBatchNormBackward0", "NativeGroupNormBackward0", "NativeLayerNormBackward0"),
                    ("input", False)),
    **dict.fromkeys(("GeluBackward0", "MishBackward0", "SiluBackward0", "SoftplusBackward0"), ("self", False)),
    "AddmmBackward0": ("mat1", False), "MmBackward0": ("self", False), "BmmBackward0": ("self", False),
}
# Of these, whose input is saved also where the weight is frozen: then nobody may compute with it.
_OF_WEIGHTS = frozenset(("ConvolutionBackward0", "NativeBatchNormBackward0", "NativeGroupNormBackward0", "NativeLayerNormBackward0"))
# Nodes between such a one and the output of a module that computes with functions.
_BETWEEN = reused_outputs.VIEWS | {"AddBackward0", "CloneBackward0", "MulBackward0", "SubBackward0"}
_MOST_BETWEEN = 8


class _WeakStorage:
    """A reference to a storage that does not keep its memory, of C++, which a program does not see. Gives the storage; None
    when it is gone."""

    __slots__ = ("_kind", "_pointer")

    def __init__(self, storage):
        self._kind, self._pointer = type(storage), storage._weak_ref()

    def __call__(self):
        return self._kind._new_with_weak_ptr(self._pointer)

    def __del__(self):
        self._kind._free_weak_ref(self._pointer)


class LentInputs:
    """Data of root modules, looked at when a backward pass begins. Holds weak references to storages, no tensor."""

    def __init__(self, observer):
        self._observer = observer
        self._step, self._noted = -1, []

    def note(self, place, args, kwargs):
        """A root is about to be called in training."""
        observer, read = self._observer, self._observer.read
        if self._step != observer.step:
            self._step, self._noted = observer.step, []
        with read.unobserved():
            for name, tensor in observer.modules.named_inputs(args, kwargs):
                value = read.again(tensor)
                if value is not None and value.device != values.CUDA and len(self._noted) < _MOST:
                    storage = _WeakStorage(read.bare(tensor).untyped_storage())
                    self._noted.append((storage, value, place.id, observer.modules.slot("lent", name)))

    def look_again(self, thread):
        """A backward pass begins. A storage that lives, with its memory where it was, may be read. It was lent before the
        call, or in it."""
        read = self._observer.read
        if self._step != self._observer.step:
            return
        noted, self._noted = self._noted, []
        for reference, value, scope, slot in noted:
            storage = reference()
            if (storage is not None and read.is_lent(storage)
                    and (storage.data_ptr(), storage.nbytes()) == (value.base, value.storage_bytes)):
                thread.batch.tensor(engine.BACKWARD, engine.HASH, scope, 0, slot, 0, value)
                self._observer.submit(thread)  # while the storage is held


class NeededMemory:
    """What the node of a module's output has saved, or one near behind it, hashed when that output's gradient has come, which is
    before the node runs (`needed:NAME`). The judge holds it against what the same call of the module took or gave, or what was
    saved when the call was left.

    All such nodes are asked in the steps of a root that _is_due() names, in the others those that had saved such memory before. In
    steps 1, 2, 4, 8 and so on memory of torch alone is hashed, too: a write through `.data` is not counted either.
    An input of a module is saved as it was recorded where the module is torch's own and no hook runs in between."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._node = getattr(torch._C, "_current_autograd_node", None)
        self._hooks = getattr(torch.nn.modules.module, "_global_forward_pre_hooks", ())  # of all modules
        saved = getattr(torch._C._autograd, "SavedTensor", None)
        self._knows_hooks = hasattr(saved, "unpack_hook") and hasattr(saved, "data")
        self._step, self._due, self._of_torch = -1, False, False
        self._walked = set()  # ids of places of roots whose modules were looked at in this step
        self._plain = set()  # ids of places whose modules are torch's own, without hooks in front of the forward
        self._saved = set()  # slot words of calls of which that was recorded in this step when they were left
        self._exposed = set()  # targets of hooks: outputs whose nodes have saved such memory
        self._original = None  # what is called when a gradient has come

    def note(self, place, module, count):
        """A root is about to be called in training. `count`: in how many steps it has been; 0 if it was in this one."""
        observer = self._observer
        if self._node is None or not self._knows_hooks:
            return
        if self._step != observer.step:
            self._step, self._due, self._of_torch = observer.step, False, False
            self._walked.clear()
            self._plain.clear()
            self._saved.clear()
        if count:
            self._due, self._of_torch = self._due or _is_due(count), self._of_torch or is_power(count)
        self._look_at_gradients(self._due or bool(self._exposed))
        if self._original is not None and not self._hooks and place.id not in self._walked:
            self._walked.add(place.id)
            for entry, one in observer.names.modules(module):
                if contents.module_of(type(one)).startswith("torch.nn.modules.") and not own(one, "_forward_pre_hooks"):
                    self._plain.add(entry.place.id)

    def _look_at_gradients(self, wanted):
        hot = self._observer.hot
        if wanted and self._original is None:
            self._original, hot.gradient = hot.gradient, self._come
            self._observer.modules.look_at_outputs(self._left)
        elif not wanted and self._original is not None:
            hot.gradient, self._original = self._original, None
            self._observer.modules.look_at_outputs(None)

    def _left(self, call, output):
        """A module has given its output."""
        try:
            thread, _, key, *_ = call
            if key & 0xFFFFFFFF in self._plain or not self._is_asked() or thread.slot[1] != engine.FORWARD:
                return
            read = self._observer.read
            with read.unobserved():
                firsts = [read.bare(tensor).grad_fn for tensor in read.tensors(output)]
                if any([self._record(thread, engine.FORWARD, key, _nodes_of(first), None) is not None for first in firsts]):
                    self._saved.add(key)
                    self._observer.submit(thread)
        except Exception as error:
            self._observer.failed("saved memory", error)

    def _come(self, targets, gradient):
        """The gradient of a module's output. `targets`: as GradHook has them."""
        original = self._original or self._observer.hot.gradient
        if self._due or targets in self._exposed:
            try:
                self._look(targets)
            except Exception as error:
                self._observer.failed("saved memory", error)
        return original(targets, gradient)

    def _is_asked(self):
        observer = self._observer
        return observer.capture and not observer.compiles() and not observer.is_tracing()

    def _look(self, targets):
        if not self._is_asked():
            return
        thread, (key, _), first = self._observer.threads.state, targets[0], self._node()
        nodes = _nodes_of(first) if key in self._saved else (first,)
        with self._observer.read.unobserved():
            lent = self._record(thread, engine.BACKWARD, key, nodes, first, key in self._saved or key & 0xFFFFFFFF in self._plain)
            if lent and len(self._exposed) < _MOST_EXPOSED:
                self._exposed.add(targets)
            if lent is not None:
                self._observer.submit(thread)

    def _record(self, thread, phase, key, nodes, giver, of_inputs=True):
        """Packs what nodes have saved, of their results that of `giver` alone.
        @return whether any of it lies in memory that others can write; None where nothing is packed"""
        observer, read, lent = self._observer, self._observer.read, None
        for node in nodes:
            name = contents.name_of(type(node))
            saved, is_output = _NEEDED.get(name, (None, False))
            if saved is None or not (node is giver if is_output else of_inputs):
                continue
            if name in _OF_WEIGHTS and node.next_functions[1][0] is None:
                continue
            holder = getattr(node, "_raw_saved_" + saved, None)
            if holder is None or holder.unpack_hook is not None:
                continue  # whoever packs it would be run
            tensor = holder.data  # `_saved_` would detach a result, an operator that a mode of the program sees
            if not read.is_plain(tensor) or not tensor.is_cpu or not tensor.is_contiguous():
                continue
            borrows = read.borrows(tensor)
            value = read.again(tensor) if borrows or self._of_torch else None
            if value is not None:
                thread.batch.tensor(phase, engine.HASH, key & 0xFFFFFFFF, key >> 32, observer.modules.slot("needed", saved),
                                    observer.port.intern(name), value)
                lent = borrows or bool(lent)
        return lent


def _nodes_of(first):
    """@return a node and, behind views, sums and products, those that it comes from; none of a leaf."""
    found = [] if first is None else [first]
    for node in found:
        if contents.name_of(type(node)) in _BETWEEN and len(found) < _MOST_BETWEEN:
            found += [one for one, _ in node.next_functions if one is not None]
    return found


def _is_due(count):
    """@return whether all nodes are asked in the step of this number, from 1 on: in the first, second, fourth and so on, and in
    about one of sixteen, the same in each run, whose distances are no period that the program may have, too."""
    return is_power(count) or count * 2654435761 >> 28 & 15 == 0


def is_power(count):
    """@return whether a number is 1, 2, 4, 8 and so on"""
    return count > 0 and count & (count - 1) == 0
