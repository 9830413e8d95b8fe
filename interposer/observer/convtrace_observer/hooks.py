"""What happens at each module call, and at each gradient of a module's output.

Only the global forward pre and post hooks are used, and hooks on output tensors for the backward
pass: the global full backward hook would turn outputs into views, which breaks models that modify
them in place. In torch.compile regions the first line folds to `return`.
"""
import sys

from . import engine, scopes

_FORWARD, _DATA, _BACKWARD, _RECOMPUTE = (
    engine.FORWARD, engine.DATA, engine.BACKWARD, engine.RECOMPUTE)
_HASH = engine.HASH


class GradHook:
    """On one tensor: the modules whose output it is, innermost first. Holds no tensor."""

    __slots__ = ("_observer", "targets")
    __torch_unserializable__ = True  # torch.save of the tensor stays silent

    def __init__(self, observer, target):
        self._observer = observer
        self.targets = [target]

    def __call__(self, gradient):
        observer = self._observer
        if observer.is_compiling() or not observer.active:
            return
        try:
            thread = observer.threads.state
            thread.slot[0] = self.targets[0][0]
            thread.set_phase(_BACKWARD)
            if observer.capture and gradient is not None:
                self._record(observer, thread, gradient)
        except Exception as error:
            observer.failed("gradient hook", error)

    def _record(self, observer, thread, gradient):
        with observer.read.unobserved():
            value = observer.read(gradient)
        if value is not None:
            for key, slot in reversed(self.targets):
                thread.batch.tensor(_BACKWARD, observer.full, key & 0xFFFFFFFF, key >> 32, slot, 0,
                                    value)
            observer.submit(thread)


class ModuleHooks:
    """The two global forward hooks. `pre` and `post` are closures because they run at every module
    call of the program: what they need is one cell away."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._slots = {}
        self._call_code = getattr(torch.nn.Module._call_impl, "__code__", None)
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self.pre, self.post = self._make_pre(), self._make_post()

    def forget(self):
        self._slots.clear()

    def slot(self, kind, name):
        """Id of "input:0", "output:1", "grad_output:0" ..."""
        number = self._slots.get((kind, name))
        if number is None:
            number = self._slots[kind, name] = self._observer.port.intern("%s:%s" % (kind, name))
        return number

    def _make_pre(self):
        observer, threads = self._observer, self._observer.threads
        is_compiling = observer.is_compiling
        entry_of = observer.names.entries.get
        unusual, inputs = self._unusual, self._inputs

        def forward_pre_hook(module, args):
            if is_compiling():
                return
            try:
                thread = threads.state
                stack = thread.stack
                entry = entry_of(id(module))
                if not stack or entry is None or entry is stack[0]:
                    entry = unusual(thread, module, entry)
                    if entry is None:
                        return
                elif entry.wrapper is not None and stack[-1] is entry.wrapper:
                    thread.enter(entry, thread.keys[-1])  # the wrapper speaks for it
                    return
                place = entry.place
                if place.step != observer.step:
                    place.reset(observer.step)
                if thread.slot[1] == _RECOMPUTE:
                    call = place.recomputes
                    place.recomputes = call + 1
                else:
                    call = place.calls
                    place.calls = call + 1
                key = place.id | call << 32
                stack.append(entry)
                thread.keys.append(key)
                thread.slot[0] = key
                if observer.capture:
                    inputs(thread, place, call, args)
            except Exception as error:
                observer.failed("forward pre hook", error)

        return forward_pre_hook

    def _make_post(self):
        observer, threads = self._observer, self._observer.threads
        is_compiling = observer.is_compiling
        entry_of = observer.names.entries.get
        unwind, outputs, root_left = self._unwind, self._outputs, self._root_left

        def forward_hook(module, args, output):
            if is_compiling():
                return
            try:
                thread = threads.state
                stack = thread.stack
                entry = entry_of(id(module))
                if not stack or stack[-1] is not entry:
                    if entry is None or not unwind(thread, entry):
                        return
                stack.pop()
                key = thread.keys.pop()
                if observer.follows and not (entry.wrapper is not None and stack
                                             and stack[-1] is entry.wrapper):
                    outputs(thread, key, output)
                thread.slot[0] = thread.keys[-1]
                if not stack:
                    root_left(thread)
            except Exception as error:
                observer.failed("forward hook", error)

        return forward_hook

    def _unusual(self, thread, module, entry):
        """A call at top level, of a module not seen before, or of the outermost module again."""
        stack = thread.stack
        if stack and entry is None:
            return self._observer.names.add_called(module, stack[-1])
        if stack:
            if self._call_code is None or (
                    scopes.modules_on_python_stack(self._call_code) > len(stack)):
                return entry  # it calls itself
            thread.clear()  # an interrupt left it without our post hook
        return self._root(thread, module, entry)

    def _root(self, thread, module, entry):
        observer = self._observer
        if module.__dict__.get("_is_replica"):
            return None  # a DataParallel copy on its own thread; the wrapper is recorded
        if not observer.begin(thread):
            return None
        first = entry is None
        if first:
            entry = observer.names.add_root(module)
        if self._graph_task() != -1:
            thread.keys[0] = thread.slot[0]  # the backward scope to come back to
            thread.set_phase(_RECOMPUTE)
            return entry
        thread.keys[0] = 0
        thread.set_phase(_FORWARD)
        if observer.steps.root_forward(entry):
            observer.open_step(thread)
        if first and observer.capture:
            observer.optimizers.record_initial(thread, module)
        return entry

    def _root_left(self, thread):
        if thread.slot[1] == _RECOMPUTE:
            thread.set_phase(_BACKWARD)

    def _unwind(self, thread, entry):
        """Drops modules that were left without a post hook, down to `entry`."""
        stack = thread.stack
        if entry not in stack:
            return False
        while stack[-1] is not entry:
            thread.leave()
        return True

    def _inputs(self, thread, place, call, args):
        observer = self._observer
        batch, read, phase = thread.batch, observer.read, thread.slot[1]
        capture, at_phase, at_call = _HASH, phase, call
        if len(thread.stack) == 1 and phase == _FORWARD:
            capture, at_phase, at_call = observer.full, _DATA, place.inputs
            place.inputs += 1
        kwargs = _keyword_arguments(sys._getframe(2))
        with read.unobserved():
            batch.scope(phase, 1, place.id, call)
            for name, tensor in self._named_inputs(args, kwargs):
                value = read(tensor)
                if value is not None:
                    batch.tensor(at_phase, capture, place.id, at_call, self.slot("input", name), 0,
                                 value)
        observer.submit(thread)

    def _named_inputs(self, args, kwargs):
        tensors = self._observer.read.tensors
        yield from enumerate(tensors(args))
        for name, structure in kwargs.items():
            found = tensors(structure)
            if len(found) == 1:
                yield name, found[0]
            else:
                for index, tensor in enumerate(found):
                    yield "%s.%d" % (name, index), tensor

    def _outputs(self, thread, key, output):
        """Also called where only the scopes of the backward pass are wanted (no capture): then for
        CUDA tensors alone, whose launches need them."""
        observer = self._observer
        batch, read, phase = thread.batch, observer.read, thread.slot[1]
        scope, call = key & 0xFFFFFFFF, key >> 32
        capture = observer.capture
        with read.unobserved():
            for index, tensor in enumerate(read.tensors(output)):
                value = read(tensor) if capture else None
                if value is not None:
                    batch.tensor(phase, observer.full, scope, call, self.slot("output", index), 0,
                                 value)
                if (value is not None or tensor.is_cuda) and tensor.requires_grad:
                    self._follow_gradient(tensor, (key, self.slot("grad_output", index)))
        if capture:
            batch.scope(phase, 0, scope, call)
            observer.submit(thread)

    def _follow_gradient(self, tensor, target):
        if tensor.grad_fn is None:
            return  # a leaf outlives the call, and hooks on it would pile up
        hooks = tensor._backward_hooks  # after grad_fn, which renews a view whose base was written
        for hook in hooks.values() if hooks else ():
            if type(hook) is GradHook:
                hook.targets.append(target)
                return
        tensor.register_hook(GradHook(self._observer, target))


def _keyword_arguments(frame):
    """Global pre hooks are not given them; they are in the caller, Module._call_impl (or its inner
    function). Taken there and not in the post hook, so that they precede what depends on them."""
    kwargs = frame.f_locals.get("kwargs")
    return kwargs if type(kwargs) is dict else {}
