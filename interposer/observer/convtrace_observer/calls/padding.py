"""Finds inputs that contain padding: the indices of an embedding with a padding index, and the labels of a
loss that ignores an index. `convtrace show --density` prints their share. Also records the arguments of losses
that are called as functions, without a module.
"""
import functools

from ..base import contents, engine, replaced, values

_EMBEDDINGS = frozenset(("Embedding", "EmbeddingBag"))
INDICES = (0, "input")  # the name of an embedding's input, as modules.py has it
# torch._C._nn holds what torch.nn.functional and the loss modules end in. These two alone are
# replaced, since torch.nn.functional's own are known to Dynamo, torch.jit and torch.fx by identity.
_LOSSES = ("cross_entropy_loss", "nll_loss_nd")
_TARGET, _IGNORED = 1, 4  # positions of their arguments
_SETTINGS = ((3, "reduction", ("none", "mean", "sum")), (_IGNORED, "ignore_index", None), (5, "label_smoothing", None))
_INTEGERS = range(7, 15)  # of format/model/dtype.h


def index_of(module):
    """@return the padding index of an embedding, else None."""
    index = dict.get(contents.attributes(module), "padding_idx")
    if type(index) is int and 0 <= index < 2**31:
        if any(contents.name_of(kind) in _EMBEDDINGS for kind in contents.mro_of(type(module))):
            return index
    return None


def capture(value, full):
    """@return the capture to request for a tensor with padding. The engine counts padding in host memory; on a device the
    statistics count zeros and negative elements."""
    return engine.HASH if value.device == values.CPU else full


class Labels:
    """Records the labels and settings of losses, called as modules or functions."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._functions = getattr(torch._C, "_nn", None)
        self._replaced = replaced.Replaced()
        self._told = set()

    def install(self):
        for name in _LOSSES:
            self._replaced.surround(self._observer, self._functions, name, functools.partial(self._before, name))

    def remove(self):
        self._replaced.put_back()

    def _before(self, name, args, kwargs):
        observer = self._observer
        if observer.capture and len(args) > _IGNORED and not observer.is_compiling() and not observer.is_tracing():
            self._record(name, args)

    def _record(self, name, args):
        observer, ignored = self._observer, args[_IGNORED]
        try:
            with observer.read.unobserved():
                value = observer.read(args[_TARGET])
            thread = observer.threads.state
            if not observer.begin(thread):
                return
            root = observer.names.place("") if thread.entry is None else None
            scope, call = (root.id, None) if root is not None else thread.place()
            self._tell(thread, scope, name, args)
            if value is not None and value.dtype in _INTEGERS and -2**31 <= ignored < 2**31:
                slot, phase = observer.modules.slot("input", _TARGET), thread.slot[1]
                if root is not None:
                    call = observer.occurrence(root, phase, slot)
                thread.batch.tensor(phase, capture(value, observer.full), scope, call, slot,
                                    observer.port.intern("aten::" + name), value, (engine.LABELS, ignored))
            observer.submit(thread)
        except Exception as error:
            observer.failed("labels", error)

    def _tell(self, thread, scope, name, args):
        """Records a loss function's settings the first time that a place passes them."""
        settings = tuple(args[at] for at, _, _ in _SETTINGS if at < len(args))
        if (scope, name, settings) not in self._told:
            self._told.add((scope, name, settings))
            text = ", ".join("%s=%r" % (word, words[value] if words and value in range(3) else value)
                             for value, (_, word, words) in zip(settings, _SETTINGS))
            thread.batch.event_fact(scope, "loss." + name, text)
