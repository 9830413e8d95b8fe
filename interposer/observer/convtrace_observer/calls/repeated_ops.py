"""Finds ops that one module calls several times in a forward pass and whose results depend only on their recorded tensors.
A random generator that advances during a call excludes an op, as do other arguments that differ between calls; convtrace
check compares the calls of the remaining ops.

An op is watched from the first call of a step on if an earlier step had two calls. One that is called once per step cannot
be compared, and no generator is read for it.
"""
from ..base import contents

# Values of the fact "op.NAME". The first is recorded at the first watched call; one of the others ends the watch.
TENSORS_ALONE, DRAWS, OTHER_ARGUMENTS = "tensors alone", "draws", "other arguments"

_PLAIN = (bool, int, str, bytes, type(None))
_REAL = frozenset((float, complex))  # 0.0 equals -0.0, but not its text
_MAX_DEPTH = 8            # as of values.TensorReader
_TENSOR = object()


class _Op:
    """The state of an op in a module. `repeats`: a step had two calls. `known`: the value of the fact that was recorded last."""

    __slots__ = ("step", "repeats", "known", "arguments")

    def __init__(self):
        self.step, self.repeats, self.known, self.arguments = None, False, None, None


class RepeatedOps:
    def __init__(self, observer, torch):
        self._observer = observer
        self._marks = observer.marks.read  # differ after a draw from a generator; None in them: unknown
        self._tensor = torch.Tensor
        self._plain = frozenset((*_PLAIN, torch.dtype, torch.device, torch.layout, torch.memory_format))
        self._known = {}  # (scope, name) -> _Op

    def forget(self):
        self._known.clear()

    def before(self, thread, name, arguments, tensors):
        """Examines the arguments before a call whose values are recorded. `tensors`: the number of its recorded inputs.
        @return the argument of after(); None if the call is not watched."""
        scope = thread.place()[0]
        op = self._known.get((scope, name))
        if op is None:
            op = self._known[scope, name] = _Op()
        if op.step != self._observer.step:
            op.step, op.arguments = self._observer.step, None
            if op.repeats and op.known is None and None not in self._marks():
                self._tell(thread, scope, name, op, TENSORS_ALONE)
        else:
            op.repeats = True
        if op.known != TENSORS_ALONE:
            return None
        parts = []
        if not self._flatten(arguments, parts, 0) or parts.count(_TENSOR) != tensors or parts != (op.arguments or parts):
            self._tell(thread, scope, name, op, OTHER_ARGUMENTS)
            return None
        op.arguments = parts
        return scope, op, self._marks()

    def after(self, thread, name, watched):
        scope, op, marks = watched
        if None in marks or marks != self._marks():
            self._tell(thread, scope, name, op, DRAWS)

    def _tell(self, thread, scope, name, op, value):
        op.known = value
        thread.batch.event_fact(scope, "op." + name, value)

    def _flatten(self, items, parts, depth):
        """Appends the comparable parts of each item. @return whether each item is a tensor or a plain value."""
        tensor, plain = self._tensor, self._plain
        for item in items:
            kind = type(item)
            if contents.is_one_of(kind, plain):
                parts.append((kind, item))
            elif contents.is_one_of(kind, _REAL):
                parts.append(repr(item))
            elif issubclass(kind, tensor):
                parts.append(_TENSOR)
            elif depth < _MAX_DEPTH and issubclass(kind, (tuple, list, dict)):
                values = [one for pair in contents.items(item) for one in pair] or list(contents.elements(item))
                parts.append((id(kind), len(values)))
                if not self._flatten(values, parts, depth + 1):
                    return False
            else:
                return False
        return True
