"""Finds the tensors that an autograd.Function keeps for its backward, and other owners of their memory.

A Function's node keeps tensors by `save_for_backward`, as attributes of `ctx`, and in containers, objects and closures of functions
among these attributes. Closed-over variables, globals, and objects that outlive the call (a class, a module on `ctx`) may have
others, which the code of the backward names (again/code_uses.py). All are read when the forward has returned and again before the
backward runs. A node whose saved tensors are packed by hooks (checkpointing, offloading) is not read, since reading would run the
hooks.
"""
import collections
import functools
import sys
import types
import weakref

from ..again import code_uses, unseen
from ..base import contents, signals

_MOST = 64  # tensors of one node, and elements of an examined list: larger ones would take too long
_MOST_CALLS = 256
_MOST_CLASSES = 1 << 12
_OF_TORCH = "torch.autograd.function"  # has a setup_context that only raises

# C++'s counts of references in a backward whose tensors have no other owners: to a gradient, to a saved tensor, to the base of
# a saved view (without the view's own), and to the storage of a tensor that is no view.
_Counts = collections.namedtuple("_Counts", "gradient saved base storage")


class Kept:
    def __init__(self, torch, observer, nodes):
        self._observer, self._read = observer, observer.read
        self._step, self._calls = None, {}  # (op, slot word) -> calls in this step
        self._nodes, self._packs_single = nodes, False
        self._outside = {}  # id of a class of nodes -> (reference to it, Outside)
        self._hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        self._storage_count = getattr(torch._C, "_storage_Use_Count", None)
        self._torch, self._counts = torch, None
        self._was_asked, self._is_measured = False, False  # the first: a backward pass has begun

    def next_call(self, op, place):
        """Counts a call of an op's forward. @return its number among the op's calls in this call of a module, by which the
        backward finds the records; None if hooks pack saved tensors now, or there were too many calls."""
        if self._step != self._observer.step:
            self._step = self._observer.step
            self._calls.clear()
            if self._was_asked and not self._is_measured and self._is_plain():
                self._measure()
        number = self._calls.get((op, place), 0)
        self._calls[op, place] = number + 1
        return number if number < _MOST_CALLS and self._is_plain() else None

    def _is_plain(self):
        return not self._packs_single and self._hooks is not None and self._hooks(False) is None

    def packs_single(self):
        """Notes that the program sets hooks on single saved tensors. It is unknown on which, and reading one would run them."""
        self._packs_single = True

    def tensors(self, node):
        """@return [(kind of slot, name, tensor)] of a node; empty if it has been freed or its tensors cannot be read."""
        if self._packs_single:
            return []
        try:
            found = [("saved", index, tensor) for index, tensor in enumerate(self._nodes.saved(node)) if tensor is not None]
        except RuntimeError:  # freed by an earlier backward, or written since, which torch detects
            return []
        objects, on_ctx, outside = [], vars(node), self._outside_of(type(node))
        for name in list(on_ctx):
            value = on_ctx[name]
            if outside is not None and name in outside.logged:
                continue
            if self._read.is_plain(value):
                found.append(("ctx", name, value))
            elif not contents.is_one_of(type(value), code_uses.STATELESS):
                is_own = _references(on_ctx, name) == 2  # of ctx and of `value`
                if not is_own:
                    objects.append((name, value))
                found += [("ctx", "%s.%s" % (name, part), one) for part, one in _parts(value, is_own) if self._read.is_plain(one)]
        if outside is not None and outside.paths and (objects or outside.has_roots):
            function = code_uses.function_of(type(node)._forward_cls, "backward")
            there = outside.found(function, objects) if function is not None else ()
            found += [("state", name, one) for name, one in there if self._read.is_plain(one)]
            if outside.has_roots:
                self._observer.modules.function_state.note_function(self._outside[id(type(node))][0], outside)
        return found[:_MOST]

    def _outside_of(self, kind):
        """@return the Outside of a class of nodes; None if the code of its backward is not known."""
        known = self._outside.get(id(kind))
        if known is None or known[0]() is not kind:
            if len(self._outside) == _MOST_CLASSES:
                self._outside.clear()
            forwards = [code_uses.function_of(kind._forward_cls, name) for name in ("forward", "setup_context")]
            function = code_uses.function_of(kind._forward_cls, "backward")
            forwards = [one for one in forwards if one and one.__module__ != _OF_TORCH]
            known = weakref.ref(kind), function and code_uses.Outside(forwards, function)
            self._outside[id(kind)] = known
        return known[1]

    def is_renewed(self, thread, node, name, tensor, args):
        """@return whether a buffer on ctx has other contents in each call, which are no average, and the backward only reads it: the
        forward of the op, which takes it as an argument, fills it before it reads it."""
        outside = self._outside_of(type(node))
        return bool(outside) and name in outside.only_read and any(
            one is tensor for index, one in enumerate(args) if index in outside.renewed)

    def saved(self, node):
        """@return the tensors that a node has by save_for_backward."""
        return [tensor for kind, _, tensor in self.tensors(node) if kind == "saved"]

    def states(self, thread, tensors, inputs):
        """@return {name: the word that replaces "saved" in the slot} of the saved tensors that are inputs and get no gradient:
        they may be state that is kept and not read. Buffers are those of the running module."""
        return {name: "saved_buffer" if is_buffer(thread, tensor) else "saved_leaf" for kind, name, tensor in tensors
                if kind == "saved" and tensor.is_leaf and not tensor.requires_grad and any(one is tensor for one in inputs)}

    def is_shared_gradient(self, tensor):
        """@return whether a gradient that a backward was given has another owner, such as another branch of the graph."""
        self._was_asked = True
        return self._counts is not None and self._is_held(tensor, self._counts.gradient)

    def is_shared_saved(self, node, tensor):
        """@return whether the memory of a saved tensor has another owner: a node that needs it, an alias. False for a leaf,
        which its module holds anyway, and for the node's own output, which the program may hold without need."""
        return (self._counts is not None and not tensor.is_leaf and tensor.grad_fn is not node
                and self._is_held(tensor, self._counts.saved))

    def _measure(self):
        """Measures the counts of references in backward passes with known owners, since releases of torch differ. If they do
        not tell owners apart, shared memory is not reported. Runs torch's engine: therefore not before the program did, and
        not where a profiler would list it."""
        own = unseen.Unseen(self._torch)
        if self._nodes.graph_task() != -1 or not own.is_possible():
            return
        self._is_measured = True
        try:
            with own.region():
                self._counts = measured(self._torch, self._storage_count)
        except Exception as error:
            signals.let_pass(error)

    def _is_held(self, tensor, own):
        """@return whether a tensor or its memory has more than its `own` references. Only counters are read."""
        if not self._read.is_plain(tensor):
            return False
        try:
            base, storage = tensor._base, tensor.untyped_storage()
            is_view, is_part = base is not None, base is not None and base.numel() != tensor.numel()
            if is_part:  # who holds other parts of the base does not count
                return tensor._use_count() > own
            return (tensor._use_count() > own or is_view and base._use_count() > self._counts.base or
                    self._storage_count(storage._cdata) > self._counts.storage + is_view)
        except Exception as error:  # a kind of tensor without a storage
            signals.let_pass(error)
            return False


def _references(held, name):
    """@return the number of references to a value of a dict, at least 1."""
    return sys.getrefcount(held[name]) - _OF_THE_CALL


_OF_THE_CALL = 0
_OF_THE_CALL = _references({"": object()}, "") - 1


def _parts(value, is_own=False):
    """@return (name, content) of the elements of a tuple or list, the closure of a function, and the arguments of a partial; of
    an object that ctx alone holds (`is_own`) also the values of a dict, and the attributes that are no properties. Others may
    hold a running average in such an object, which a later call changes."""
    kind = type(value)
    if issubclass(kind, (tuple, list)):
        return enumerate(contents.elements(value)) if contents.length(value) <= _MOST else ()
    if kind is functools.partial:
        return [*enumerate(value.args), *contents.items(value.keywords), *_parts(value.func)]
    if kind is types.MethodType:
        return _parts(value.__func__)
    if kind is types.FunctionType:
        return code_uses.closed_over(value)
    held = value if issubclass(kind, dict) else contents.attributes(value)
    if not is_own or contents.length(held) > _MOST:
        return ()
    found = [*contents.items(held), *contents.slots(value)]
    return [(_name_of(key, index), one) for index, (key, one) in enumerate(found)]


def _name_of(key, index):
    """@return the name of a value of a dict: its key, unless that is the program's object, or perhaps another one in each call."""
    return key if type(key) is str and str.isidentifier(key) else index


def is_buffer(thread, tensor):
    """@return whether a tensor is a buffer of the running module. Kernels of normalizations write running statistics without
    a count by PyTorch."""
    entry = thread.entry
    return entry is not None and any(number == id(tensor) for number, _ in entry.buffers or ())


def measured(torch, storage_count):
    """@return the _Counts of this torch; None if they do not tell owners apart."""
    seen = []

    class Probe(torch.autograd.Function):
        __module__ = torch.__name__  # no custom op

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x + 1

        @staticmethod
        def backward(ctx, gradient):
            saved, = ctx.saved_tensors
            base, storages = saved._base, [one.untyped_storage() for one in (gradient, saved)]
            seen.append((gradient._use_count(), saved._use_count(), 0 if base is None else base._use_count(),
                         *(storage_count(one._cdata) for one in storages)))
            return gradient * 1

    with torch.enable_grad():
        for before in (lambda x: x * 2, lambda x: (x * 2).view(2), torch.exp):
            taken = before(torch.ones(2, device="cpu", dtype=torch.float32, requires_grad=True))
            result = Probe.apply(taken)
            result = (result + taken if before is torch.exp else result) * 2
            del taken
            torch.autograd.Variable._execution_engine.run_backward(
                (result,), (torch.ones_like(result),), False, False, (), allow_unreachable=True, accumulate_grad=True)
    (gradient, saved, _, storage, same), (*_, base, _, of_view), shared = seen
    tells = (storage == same and of_view == storage + 1 and
             shared == (gradient + 1, saved, 0, storage, storage + 1))
    return _Counts(gradient, saved, base, storage) if tells else None
