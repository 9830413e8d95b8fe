"""Finds gradients that the backward of an op adds to a leaf itself, although autograd adds the one that it returns for that leaf.

The values show whether both are the same gradient: from the second such call of the op on, the leaf's gradient before the op
(`grad_before:I`, if there is one) and after it (`grad_after:I`) is recorded beside the returned one (`grad_input:I`).
"""
from ..base import contents, engine, values
from . import reused_outputs

_MOST = 64  # recorded leaves of ops
_LEAF = "AccumulateGrad"
# The attribute by which a backward marks a leaf to whose own gradient it has added (Megatron's `main_grad`). It then returns an
# uninitialized tensor of that shape, which is never read.
_ADDED = "grad_added_to_main_grad"
_NONE = frozenset()


class AddedGradients:
    def __init__(self, observer, torch, nodes):
        self._observer, self._nodes = observer, nodes
        self._waiting = reused_outputs.WaitingGradients(observer, nodes)
        self._doubted = set()  # (name of an op, position of a leaf) that such a backward was seen of

    def before(self, thread, tag, node):
        """Notes the leaves of a backward that is about to run. @return the argument of after(), or None: [(node, number of its
        input)] of the receivers, [(position among these, the leaf, the id of its gradient, the gradient's count of writes)]"""
        try:
            return self._before(thread, tag, node) if self._observer.capture else None
        except Exception as error:
            self._observer.failed("gradients of leaves", error)
            return None

    def _before(self, thread, tag, node):
        observer = self._observer
        wanted = [one for one in self._nodes.next(node) if one[0] is not None]
        noted = []
        with observer.read.unobserved():
            for position, (one, _) in enumerate(wanted):
                leaf = one.variable if contents.name_of(type(one)) == _LEAF else None
                if not observer.read.is_plain(leaf):
                    continue
                gradient = leaf.grad
                if gradient is None:
                    noted.append((position, leaf, None, 0))
                elif observer.read.is_plain(gradient):
                    noted.append((position, leaf, id(gradient), values.version(gradient)))
                    if (tag.name, position) in self._doubted:
                        self._record(thread, tag, "grad_before", position, gradient)
        return wanted, noted

    def after(self, thread, tag, before, taken, result, saved):
        """Examines the leaves after the backward. @param taken  the gradients that it was given
        @param result  its result
        @param saved  returns the tensors that the op has saved
        @return the ids of the leaves that it returned a gradient for, and of the returned gradients that are ignored"""
        if before is None:
            return _NONE, _NONE
        try:
            return self._after(thread, tag, *before, taken, result, saved)
        except Exception as error:
            self._observer.failed("gradients of leaves", error)
            return _NONE, _NONE

    def _after(self, thread, tag, wanted, noted, taken, result, saved):
        returned = [one for one in (result if type(result) is tuple else (result,)) if one is not None]
        known = len(returned) == len(wanted)  # whether each gradient's receiver is known
        if not known:
            noted = ()
        with self._observer.read.unobserved():
            dummies = {position for position, leaf, _, _ in noted if contents.attribute(leaf, _ADDED) is True}
            seen = [None if position in dummies else one for position, one in enumerate(returned)]
            self._waiting.see(thread, tag.name, taken, seen, wanted if known else (), saved)
            self._look(thread, tag, noted)
        return {id(leaf) for _, leaf, _, _ in noted}, {id(returned[position]) for position in dummies}

    def _look(self, thread, tag, noted):
        for position, leaf, gradient, version in noted:
            now = leaf.grad
            if not self._observer.read.is_plain(now) or (id(now) == gradient and values.version(now) == version):
                continue
            if (tag.name, position) in self._doubted:
                self._record(thread, tag, "grad_after", position, now)
            elif len(self._doubted) < _MOST:
                self._doubted.add((tag.name, position))

    def _record(self, thread, tag, kind, position, gradient):
        observer = self._observer
        value = observer.read(gradient)
        if value is not None:
            scope, call = thread.place()
            thread.batch.tensor(engine.BACKWARD, observer.full, scope, call, observer.modules.slot(kind, position),
                                observer.port.intern(tag.name), value)
