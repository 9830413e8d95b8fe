"""Checks that the backward pass finds unchanged what the forward pass saved in memory that code outside of torch can write (an
array of NumPy, a buffer of a loader). PyTorch counts no write to it that does not go through a tensor. A storage whose
memory NumPy has shared is marked by torch for good.
"""

from ..again import hooked_gradients, losses
from ..base import contents, engine, is_power, own, values
from . import reused_outputs

_MOST = 64  # tensors of one step
_MOST_PACKED = 4  # tensors into which one is packed
_MOST_EXPOSED = 1 << 12  # outputs of modules

# Nodes whose backward computes with the values of saved tensors: node -> {the tensor's name: what it is of the node}. Tensors of
# which only the shape or sign matters (pooling, ReLU) may change without harm.
_RESULT, _INPUT, _WEIGHT = "result", "input", "weight"
_NEEDED = {
    **dict.fromkeys(("ExpBackward0", "SigmoidBackward0", "SoftmaxBackward0", "LogSoftmaxBackward0", "TanhBackward0"),
                    {"result": _RESULT}),
    **dict.fromkeys(("ConvolutionBackward0", "NativeBatchNormBackward0", "NativeGroupNormBackward0", "NativeLayerNormBackward0"),
                    {"input": _INPUT, "weight": _WEIGHT}),
    **dict.fromkeys(("GeluBackward0", "MishBackward0", "SiluBackward0", "SoftplusBackward0"), {"self": _INPUT}),
    "AddmmBackward0": {"mat1": _INPUT, "mat2": _WEIGHT}, "MmBackward0": {"self": _INPUT, "mat2": _WEIGHT},
    "BmmBackward0": {"self": _INPUT, "mat2": _WEIGHT},
}
# Those of _NEEDED that save input and weight even if the other one gets no gradient, when the backward need not read them.
_OF_WEIGHTS = frozenset(("ConvolutionBackward0", "NativeBatchNormBackward0", "NativeGroupNormBackward0", "NativeLayerNormBackward0"))
# Modules of torch whose output is what their node has saved.
_ACTS = frozenset(("LogSoftmax", "Sigmoid", "Softmax", "Softmax2d", "Tanh"))
_FIRST = object()  # the key of our forward hook
# Nodes that may lie between one of _NEEDED and the output of a module that calls functions.
_BETWEEN = reused_outputs.VIEWS | {"AddBackward0", "CloneBackward0", "MulBackward0", "SubBackward0"}
_MOST_BETWEEN = 8


class LentInputs:
    """Hashes inputs of root modules again when a backward pass begins. Holds weak references to storages, no tensor."""

    def __init__(self, observer):
        self._observer = observer
        self._step, self._noted = -1, []

    def note(self, place, args, kwargs):
        """Notes the inputs of a root that is about to be called in training."""
        observer, read = self._observer, self._observer.read
        if self._step != observer.step:
            self._step, self._noted = observer.step, []
        with read.unobserved():
            for name, tensor in observer.modules.named_inputs(args, kwargs):
                value = read.again(tensor)
                if value is not None and value.device != values.CUDA and len(self._noted) < _MOST:
                    storage = values.WeakStorage(read.bare(tensor).untyped_storage())
                    self._noted.append((storage, value, place.id, observer.modules.slot("lent", name)))

    def look_again(self, thread):
        """Records the noted inputs when a backward pass begins. A storage is read if it still lives, has the same memory,
        and other code shares that memory by now."""
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
    """Hashes the tensors saved by the node of a module's output, or by a node near it, when that output's gradient arrives,
    before the node runs (`needed:NAME`). The findings compare the hash with the input or output of the same call of the
    module, or with the tensor as it was saved when the call returned. Where hooks have packed a tensor into others, these are
    hashed then, too (`packed:NAME`).

    The scores that a loss has saved are hashed when the backward pass begins, if the loss computed from them again is another
    one, and compared with the output that they are.

    All such nodes are examined in the steps of a root that _is_due() selects; in other steps only those that have saved such
    memory before. In steps 1, 2, 4, 8 and so on torch's own memory is hashed, too: a write through `.data` is not counted
    either. The saved input of a module equals its recorded input if the module is torch's own and no hook runs in between. Its saved
    result is hashed before its forward hooks run: by a hook of ours for all modules, which is there from the begin of that call on."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._node = getattr(torch._C, "_current_autograd_node", None)
        self._hooks = getattr(torch.nn.modules.module, "_global_forward_pre_hooks", ())  # of all modules
        saved = getattr(torch._C._autograd, "SavedTensor", None)
        self._knows_hooks = hasattr(saved, "unpack_hook") and hasattr(saved, "data")
        self._step, self._due, self._of_torch = -1, False, False
        self._walked = set()  # ids of places of roots whose modules were examined in this step
        self._plain = set()  # ids of places whose modules are torch's own, without forward pre-hooks
        self._saved = set()  # slot words of calls whose saved tensors were recorded in this step at their return
        self._exposed = set()  # targets of hooks: outputs whose nodes have saved such memory
        self._acts = set()  # ids of modules whose saved results are hashed before their hooks run, in this step
        self._after_all = getattr(torch.nn.modules.module, "_global_forward_hooks", None)
        self._original = None  # the hot path's own function for gradients while _come replaces it
        self._losses, self._uses_cuda = losses.Losses(torch), torch.cuda.is_initialized
        self._hooked = hooked_gradients.HookedGradients(observer, torch)

    def note(self, place, module, count):
        """Prepares for a root that is about to be called in training. `count`: the number of steps that called it so far,
        including this one; 0 if it is not the first call of this step."""
        observer = self._observer
        if self._node is None or not self._knows_hooks:
            return
        if self._step != observer.step:
            self._step, self._due, self._of_torch = observer.step, False, False
            self._walked.clear()
            self._plain.clear()
            self._saved.clear()
            if self._acts:
                self._acts.clear()
                observer.modules.look_at_modules(None)
        if count:
            self._due, self._of_torch = self._due or _is_due(count), self._of_torch or is_power(count)
        self._look_at_gradients(self._due or bool(self._exposed))
        if self._original is not None and not self._hooks and place.id not in self._walked:
            self._walked.add(place.id)
            for entry, one in observer.names.modules(module):
                if contents.module_of(type(one)).startswith("torch.nn.modules.") and not own(one, "_forward_pre_hooks"):
                    self._plain.add(entry.place.id)
                    if (self._of_torch and contents.name_of(type(one)) in _ACTS and own(one, "_forward_hooks")
                            and own(one, "_compiled_call_impl") is None and self._after_all is not None):
                        self._acts.add(id(one))
            if self._acts:
                observer.modules.look_at_modules(self._begun)

    def _look_at_gradients(self, wanted):
        hot = self._observer.hot
        if wanted and self._original is None:
            self._original, hot.gradient = hot.gradient, self._come
            self._observer.modules.look_at_outputs(self._left)
        elif not wanted and self._original is not None:
            hot.gradient, self._original = self._original, None
            self._observer.modules.look_at_outputs(None)

    def _begun(self, module):
        """Sets our hook if the module that is about to be called has hooks."""
        try:
            self._after_all.pop(_FIRST, None)  # a call has raised
            if id(module) in self._acts and self._is_asked():
                self._after_all[_FIRST] = self._given
        except Exception as error:
            self._observer.failed("saved memory", error)

    def _given(self, module, args, output):
        """Records what the node of a module's output has saved, before the module's hooks run."""
        self._after_all.pop(_FIRST, None)
        try:
            thread, read = self._observer.threads.state, self._observer.read
            if thread.slot[1] != engine.FORWARD or id(module) not in self._acts:
                return
            with read.unobserved():
                for tensor in read.tensors(output):
                    first = read.bare(tensor).grad_fn
                    if self._record(thread, engine.FORWARD, thread.slot[0], () if first is None else (first,), first, (_RESULT,)) is not None:
                        self._observer.submit(thread)
        except Exception as error:
            self._observer.failed("saved memory", error)

    def _left(self, call, output):
        """Records the tensors saved by the nodes of a module's output when its call returns: of a module whose input is the
        node's only what it did not take."""
        try:
            thread, _, key, *_ = call
            is_plain = key & 0xFFFFFFFF in self._plain
            if not self._is_asked() or thread.slot[1] != engine.FORWARD or is_plain and not self._of_torch:
                return
            read = self._observer.read
            with read.unobserved():
                firsts = [read.bare(tensor).grad_fn for tensor in read.tensors(output)]
                kinds = (_WEIGHT,) if is_plain else (_INPUT, _WEIGHT)
                if any([self._record(thread, engine.FORWARD, key, _nodes_of(first), first, kinds) is not None for first in firsts]):
                    self._saved.add(key)
                    self._observer.submit(thread)
        except Exception as error:
            self._observer.failed("saved memory", error)

    def _come(self, targets, gradient):
        """Examines the saved tensors when the gradient of a module's output arrives. `targets`: those of its GradHook."""
        original = self._original or self._observer.hot.gradient
        if self._due or targets in self._exposed:
            try:
                self._look(targets)
                if self._of_torch and self._is_asked():
                    self._hooked.come(targets, gradient)
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
        is_saved, is_plain = key in self._saved, key & 0xFFFFFFFF in self._plain
        kinds = ((_RESULT, _INPUT) if is_plain else (_RESULT,)) + ((_INPUT, _WEIGHT) if is_saved else ())
        with self._observer.read.unobserved():
            lent = self._record(thread, engine.BACKWARD, key, _nodes_of(first) if is_saved else (first,), first, kinds)
            if lent and len(self._exposed) < _MOST_EXPOSED:
                self._exposed.add(targets)
            if lent is not None:
                self._observer.submit(thread)

    def _record(self, thread, phase, key, nodes, giver, kinds):
        """Packs the tensors that nodes have saved of the given kinds, or into which hooks have packed others; of results only
        that of the node `giver`. @return whether any of them lies in memory that code outside of torch can write; None if nothing
        is packed"""
        observer, read, lent = self._observer, self._observer.read, None
        for node in nodes:
            name = contents.name_of(type(node))
            for saved, kind in _NEEDED.get(name, {}).items():
                if name in _OF_WEIGHTS and node.next_functions[0 if kind is _WEIGHT else 1][0] is None:
                    continue
                if kind is _RESULT and node is not giver:
                    continue
                tensor = self._kept_by(node, saved) if kind in kinds else None
                borrows = tensor is not None and read.borrows(tensor)
                if tensor is not None and (borrows or self._of_torch) and not (kind is _WEIGHT and _is_shared(tensor)):
                    # How much a weight changes between two calls tells whether that may be meant.
                    capture = observer.full if kind is _WEIGHT and phase == engine.FORWARD else engine.HASH
                    if self._pack(thread, phase, key, "needed", saved, name, tensor, capture):
                        lent = borrows or bool(lent)
                for tensor in self._packed_by(node, saved) if self._of_torch else ():
                    if self._pack(thread, phase, key, "packed", saved, name, tensor):
                        lent = bool(lent)
        return lent

    def _pack(self, thread, phase, key, word, saved, node, tensor, capture=engine.HASH):
        """@return whether the tensor could be read."""
        observer, value = self._observer, self._observer.read.again(tensor)
        if value is not None:
            thread.batch.tensor(phase, capture, key & 0xFFFFFFFF, key >> 32, observer.modules.slot(word, saved),
                                observer.port.intern(node), value)
        return value is not None

    def _kept_by(self, node, name):
        """@return a tensor of the CPU that a node has saved; None if there is none, or reading it would run code of a hook."""
        holder = getattr(node, "_raw_saved_" + name, None)
        if holder is None or holder.unpack_hook is not None:
            return None
        tensor = holder.data  # `_saved_` would detach a result, an operator that a mode of the program sees
        return tensor if self._is_readable(tensor) else None

    def _packed_by(self, node, name):
        """@return the tensors of the CPU into which a hook has packed what a node has saved. A copy from a GPU may be under way."""
        holder = getattr(node, "_raw_saved_" + name, None)
        if holder is None or holder.unpack_hook is None or self._uses_cuda():
            return []
        return [tensor for tensor in self._observer.read.tensors(holder.data)[:_MOST_PACKED] if self._is_readable(tensor)]

    def _is_readable(self, tensor):
        return self._observer.read.has_storage(tensor) and tensor.is_cpu

    def look_at_losses(self, thread, structure):
        """Records the scores that losses have saved, when a backward pass is about to begin from them, if they do not give those
        losses. They may have been written before the loss took them without harm."""
        if not self._of_torch or self._step != self._observer.step:
            return
        read, port = self._observer.read, self._observer.port
        self._hooked.begin([read.bare(one) for one in read.tensors(structure)])
        with read.unobserved():
            for loss in read.tensors(structure):
                for node in self._losses.changed(loss, self._kept_by) if read.is_plain(loss) else ():
                    value = read.again(self._kept_by(node, "self"))
                    if value is not None:
                        thread.batch.tensor(engine.LOSS_PHASE, engine.HASH, 0, 0, self._observer.modules.slot("needed", "self"),
                                            port.intern(contents.name_of(type(node))), value)


def _nodes_of(first):
    """@return a node and those that it is computed from through nodes of _BETWEEN; none for a leaf."""
    found = [] if first is None else [first]
    for node in found:
        if contents.name_of(type(node)) in _BETWEEN and len(found) < _MOST_BETWEEN:
            found += [one for one, _ in node.next_functions if one is not None]
    return found


def _is_shared(tensor):
    """@return whether other processes may write a tensor's memory: they may train the same weights."""
    return tensor.untyped_storage().is_shared()


def _is_due(count):
    """@return whether all nodes are examined in the step of this number, counted from 1: in steps 1, 2, 4, 8 and so on, and in
    about one of sixteen others. These are the same in each run, at irregular distances that match no period of the program."""
    return is_power(count) or count * 2654435761 >> 28 & 15 == 0
