"""What an autograd.Function keeps for its backward, and who else holds the memory of a tensor.

A Function's node keeps tensors by `save_for_backward` and as attributes of `ctx`. Both are read when the forward has
returned and again before the backward runs. Where hooks pack what is saved (checkpointing, offloading), reading would
run them: such a node is left alone.
"""
from ..base import signals

_MOST = 64  # tensors of one node
_MOST_CALLS = 256
_SEQUENCES = frozenset((tuple, list))  # whose elements are looked at; to walk what is larger, or the program's own, may cost

# References of C++ to a tensor that a backward has to itself, as torch 2.13 counts them: a gradient (Python alone), and
# a saved tensor (Python, and the node). A view has one more on its base, and on the storage.
_GRADIENT, _SAVED = 1, 2
_COUNTED_AS_KNOWN = (2, 13)


class Kept:
    def __init__(self, torch, observer, nodes):
        self._observer, self._read = observer, observer.read
        self._step, self._calls = None, {}  # (op, slot word) -> calls in this step
        self._nodes, self._packs_single = nodes, False
        self._hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        known = tuple(int(part) for part in torch.__version__.split(".")[:2]) == _COUNTED_AS_KNOWN
        self._storage_count = getattr(torch._C, "_storage_Use_Count", None) if known else None

    def next_call(self, op, place):
        """Behind a forward. @return its number among the calls of the op in this call of a module, by which the backward
        finds what was recorded; None where hooks pack what is saved now, or it is one of too many."""
        if self._step != self._observer.step:
            self._step = self._observer.step
            self._calls.clear()
        number = self._calls.get((op, place), 0)
        self._calls[op, place] = number + 1
        return number if number < _MOST_CALLS and self._is_plain() else None

    def _is_plain(self):
        return not self._packs_single and self._hooks is not None and self._hooks(False) is None

    def packs_single(self):
        """The program sets hooks on single saved tensors: which, nobody tells, and reading one would run them."""
        self._packs_single = True

    def tensors(self, node):
        """@return [(kind of slot, name, tensor)]; empty where the node has been freed or refuses."""
        if self._packs_single:
            return []
        try:
            found = [("saved", index, tensor) for index, tensor in enumerate(self._nodes.saved(node)) if tensor is not None]
        except RuntimeError:  # freed by an earlier backward, or written since, which torch tells
            return []
        for name, value in list(vars(node).items()):
            kind = type(value)
            if kind in self._read.plain:
                found.append(("ctx", name, value))
            elif kind in _SEQUENCES and len(value) <= _MOST:
                found += [("ctx", "%s.%d" % (name, index), one) for index, one in enumerate(value)
                          if type(one) in self._read.plain]
        return found[:_MOST]

    def states(self, thread, tensors, inputs):
        """Of saved tensors that are inputs to which no gradient goes, perhaps state that is kept and not read: what
        stands for "saved" in their slots, None for buffers of the module that runs, which are not looked at."""
        return {name: None if is_buffer(thread, tensor) else "saved_leaf" for kind, name, tensor in tensors
                if kind == "saved" and tensor.is_leaf and not tensor.requires_grad and any(one is tensor for one in inputs)}

    def is_shared_gradient(self, tensor):
        """Whether somebody else is to read a gradient that a backward was given: another branch of the graph."""
        return self._is_held(tensor, _GRADIENT)

    def is_shared_saved(self, node, tensor):
        """Whether somebody else holds the memory of a saved tensor: another node that needs it, an alias. Not told of
        a leaf, which its module holds anyway, and of the node's own output, which the program may hold without need."""
        return not tensor.is_leaf and tensor.grad_fn is not node and self._is_held(tensor, _SAVED)

    def _is_held(self, tensor, own):
        """Reads counters alone."""
        if self._storage_count is None or type(tensor) not in self._read.plain:
            return False
        try:
            base, storage = tensor._base, tensor.untyped_storage()
            if base is not None and base.numel() != tensor.numel():
                return False  # another part of the base is nobody's business
            is_view = base is not None
            return (tensor._use_count() > own or is_view and base._use_count() > 2 or
                    self._storage_count(storage._cdata) > 2 + is_view)
        except Exception as error:  # a kind of tensor without a storage
            signals.let_pass(error)
            return False


def is_buffer(thread, tensor):
    """Whether a tensor is a buffer of the module that runs: kernels of normalizations write running statistics past
    PyTorch's count."""
    entry = thread.entry
    return entry is not None and any(number == id(tensor) for number, _ in entry.buffers or ())
