"""Gradients that the backward of an op adds to a leaf itself, while it returns one for that leaf, which autograd adds, too.

That both are the same one, the values tell: from the second such call of the op on, what the leaf's gradient is before the
op (`grad_before:I`) and behind it (`grad_after:I`) is recorded beside `grad_input:I`, which it returns.
"""
from ..base import engine, values

_MOST = 64  # leaves of ops that are recorded
_LEAF = "AccumulateGrad"


class AddedGradients:
    def __init__(self, observer, nodes):
        self._observer, self._nodes = observer, nodes
        self._doubted = set()  # (name of an op, position of a leaf) that such a backward was seen of

    def before(self, thread, tag, node):
        """Of a backward that is about to run. @return (number of inputs that want a gradient, [(position among these, the
        leaf, its gradient, how often that was written)])"""
        try:
            return self._before(thread, tag, node) if self._observer.capture else (0, ())
        except Exception as error:
            self._observer.failed("gradients of leaves", error)
            return 0, ()

    def _before(self, thread, tag, node):
        observer = self._observer
        wanted = [one for one, _ in self._nodes.next(node) if one is not None]
        noted = []
        with observer.read.unobserved():
            for position, one in enumerate(wanted):
                leaf = one.variable if type(one).__name__ == _LEAF else None
                gradient = leaf.grad if observer.read.is_plain(leaf) else None
                if observer.read.is_plain(gradient):
                    noted.append((position, leaf, gradient, values.version(gradient)))
                    if (tag.name, position) in self._doubted:
                        self._record(thread, tag, "grad_before", position, gradient)
        return len(wanted), noted

    def after(self, thread, tag, before, result):
        """Behind it. @param result  what it returned"""
        try:
            if before[1]:
                self._after(thread, tag, *before, result)
        except Exception as error:
            self._observer.failed("gradients of leaves", error)

    def _after(self, thread, tag, wanted, noted, result):
        returned = [one for one in (result if type(result) is tuple else (result,)) if one is not None]
        if len(returned) != wanted:
            return  # which of them is the leaf's is not known
        with self._observer.read.unobserved():
            for position, leaf, gradient, version in noted:
                if leaf.grad is not gradient or values.version(gradient) == version:
                    continue
                if (tag.name, position) in self._doubted:
                    self._record(thread, tag, "grad_after", position, gradient)
                elif len(self._doubted) < _MOST:
                    self._doubted.add((tag.name, position))

    def _record(self, thread, tag, kind, position, gradient):
        observer = self._observer
        value = observer.read(gradient)
        if value is not None:
            scope, call = thread.place()
            thread.batch.tensor(engine.BACKWARD, observer.full, scope, call, observer.modules.slot(kind, position),
                                observer.port.intern(tag.name), value)
