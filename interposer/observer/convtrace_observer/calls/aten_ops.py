"""Records every operation of PyTorch inside chosen modules, forward and backward: CONVTRACE_OPS.

A dispatch mode is pushed while such a module runs, and while a backward pass runs, in which the
scope of each operation says whether it is wanted. Nothing is pushed, and no call is wrapped, where
the setting is empty: a mode makes every operation of the program slower.

Inputs that the schema of an operation does not declare as written are hashed again behind it (slots
input_after:I): a kernel that a library has registered for it may write them. Those that kernels of torch's
own write all the same have slots input_counted:I, of which nobody is accused.
"""
import fnmatch
import re

from ..base import engine, values
from . import ops

MOST_ASKED = 4096  # names that are remembered for complaint()

# Arguments that kernels of torch's own write although no schema says so: statistics of normalizations and
# observers, memory that kernels of recurrent layers keep for their backward, states of generators.
_WRITTEN_UNDECLARED = frozenset((
    "running_mean", "running_var", "running_min", "running_max", "reserve", "workspace", "weight_buf", "dropout_state",
    "noise", "rng_state", "philox_seed", "philox_offset"))


class AtenOps:
    """Supplies the dispatch modes: modules.py calls modules through `module_call`, backward.py enters `mode_of_backward`."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._text = observer.port.setting("CONVTRACE_OPS")
        self._patterns = _compile(self._text)
        self._called = False  # any module, in a step with values
        self._asked = set()  # their names
        self._schemas = {}  # an operation -> {position and name of an argument that it does not declare as written: kind of slot}
        self._wanted = {}  # scope id -> whether a pattern names it or a module around it
        self._mode = _mode_class(torch, self._record) if self._patterns else None
        self.matched = False

    def complaint(self):
        """@return a message for the end of the run if the patterns matched nothing, else None."""
        if not self._patterns or self.matched:
            return None
        if not self._called:
            return 'CONVTRACE_OPS "%s" matched nothing; no module ran in a step whose values were wanted' % self._text
        import difflib  # once, at the end: a start must not pay for it
        near = difflib.get_close_matches(self._text, sorted(self._asked), 3, 0)
        said = 'CONVTRACE_OPS "%s" matched no module that was called' % self._text
        return said + ("; nearest of those that were: " + ", ".join('"%s"' % name for name in near) if near else "")

    def module_call(self, original):
        if self._mode is None:
            return original
        observer, names = self._observer, self._observer.names

        def call(module, *args, **kwargs):
            if not (observer.is_compiling() or observer.is_tracing()) and observer.capture:
                entry, thread = names.entry(module), observer.threads.state
                if entry is not None and not thread.op_modes and self._wants(entry.place.name):
                    return self._run(thread, original, module, *args, **kwargs)
            return original(module, *args, **kwargs)

        return call

    def mode_of_backward(self, thread):
        """@return the mode that a backward pass must enter, and leave() exits; None if none is needed."""
        if self._mode is None or thread.op_modes or not self._observer.capture:
            return None
        thread.op_modes += 1
        return self._mode()

    def leave(self, thread, mode):
        thread.op_modes -= 1
        mode.__exit__(None, None, None)

    def _run(self, thread, call, *args, **kwargs):
        thread.op_modes += 1
        try:
            with self._mode():
                return call(*args, **kwargs)
        finally:
            thread.op_modes -= 1

    def _wants(self, name):
        """@return whether a pattern matches a module's name, which is noted for complaint()."""
        self._called = True
        found = any(pattern.search(name) for pattern in self._patterns)
        self.matched = self.matched or found
        if name and len(self._asked) < MOST_ASKED:
            self._asked.add(name)
        return found

    def _wants_scope(self, scope):
        wanted = self._wanted.get(scope)
        if wanted is None:
            name = self._observer.names.name_of(scope)
            parts = name.split(".") if name else []
            around = [".".join(parts[:end]) for end in range(len(parts) + 1)]
            wanted = self._wanted[scope] = any(self._wants(one) for one in around)
        return wanted

    def _record(self, function, args, kwargs):
        """Runs the operation; only what it raises itself leaves this function."""
        thread, tag = self._observer.threads.state, None
        scope, _ = thread.place()
        # Custom ops have records of their own, and views compute nothing.
        if function.namespace in ops.TORCH_NAMESPACES and not getattr(function, "is_view", False):
            if self._observer.capture and scope and self._wants_scope(scope):
                tag = ops.op_name(function._schema.name, function._overloadname)
        before = self._values(thread, tag, "input", (args, kwargs), engine.HASH) if tag is not None else ()
        result = function(*args, **kwargs)
        if tag is not None:
            if before:
                self._left(thread, tag, function, args, kwargs, before)
            self._values(thread, tag, "output", result, self._observer.full)
        return result

    def _values(self, thread, tag, kind, structure, capture):
        """@return [(index, tensor, its values.Memory)] of what was recorded."""
        observer, found = self._observer, []
        try:
            op = observer.port.intern(tag)
            scope, call = thread.place()
            with observer.read.unobserved():
                for index, tensor in enumerate(observer.read.tensors(structure)):
                    value = observer.read(tensor)
                    if value is not None:
                        thread.batch.tensor(thread.slot[1], capture, scope, call,
                                            observer.modules.slot(kind, index), op, value)
                        found.append((index, tensor, value))
            observer.submit(thread)
        except Exception as error:
            observer.failed("operation", error)
        return found

    def _left(self, thread, tag, function, args, kwargs, before):
        """Hashes again the inputs that the operation may only read. Left out is memory that others may write meanwhile:
        what a collective uses, what processes share, a parameter whose writes were counted (another thread's optimizer);
        and what lies over an argument that the operation may write."""
        observer = self._observer
        if function.namespace != "aten" or observer.collectives.any_under_way():
            return
        try:
            op, (scope, call) = observer.port.intern(tag), thread.place()
            with observer.read.unobserved():
                kinds, spans = self._kinds(function, args, kwargs)
                for index, tensor, value in before:
                    kind = kinds.get(id(tensor))
                    if kind is None or not observer.read.is_plain(tensor) or any(
                            value.base < end and start < value.base + value.storage_bytes for start, end in spans):
                        continue
                    after = observer.read.again(tensor)
                    if after is None or after[:4] + after[5:] != value[:4] + value[5:]:  # all but the count of writes
                        continue
                    if after.version != value.version and tensor.is_leaf and tensor.requires_grad:
                        continue
                    if after.device == values.CPU and tensor.untyped_storage().is_shared():
                        continue
                    thread.batch.tensor(thread.slot[1], engine.HASH, scope, call,
                                        observer.modules.slot(kind, index), op, after)
            observer.submit(thread)
        except Exception as error:
            observer.failed("operation", error)

    def _kinds(self, function, args, kwargs):
        """@return the kind of slot behind the operation by the id of each tensor that its schema does not let it write, and
        [(begin, end)] of the storages of those that it does."""
        known = self._schemas.get(function)
        if known is None:
            known = self._schemas[function] = {}
            for position, argument in enumerate(function._schema.arguments):
                if argument.alias_info is None or not argument.alias_info.is_write:
                    kind = "input_counted" if argument.name in _WRITTEN_UNDECLARED else "input_after"
                    known[position] = known[argument.name] = kind
        read, kinds, spans = self._observer.read, {}, []
        for key, argument in (*enumerate(args), *kwargs.items()):
            for tensor in read.tensors([argument]):
                if key in known:
                    kinds[id(tensor)] = known[key]
                else:
                    value = read.again(tensor)
                    spans.append((0, 1 << 64) if value is None else (value.base, value.base + value.storage_bytes))
        return kinds, spans


def _compile(patterns):
    """Compiles patterns like the engine: globs over whole names, or expressions after `re:`."""
    return [re.compile(text[3:] if text.startswith("re:") else fnmatch.translate(text))
            for text in patterns.split(";") if text]


def _mode_class(torch, record):
    from torch.utils._python_dispatch import TorchDispatchMode  # torch has imported it

    class Operations(TorchDispatchMode):
        @classmethod
        def ignore_compile_internals(cls):
            """@return True: otherwise compiled code would run eager, with other bits, or fail with fullgraph=True."""
            return True

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return record(function, args, kwargs or {})

    return Operations
