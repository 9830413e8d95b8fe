"""Records each module call.

torch.nn.Module.__call__ is wrapped. The global forward hooks of torch would work, too, but as soon as
one exists every module call of the process leaves torch's fast path, which alone costs more than all
the work here; they get no keyword arguments, and an interrupt skips them. Dynamo takes the wrapper for
the plain __call__ (it looks it up after us), and in a call that it compiles the first line folds away.
A call under torch.jit.trace is not recorded, since its graph would contain our reads.
"""
import functools
import operator
import sys

from ..again import function_state, recomputed
from ..base import contents, engine, frames, held, is_power, mode_of, nodes, own, replaced, spent, values
from . import gradients, holders, lent_inputs, naming, padding

_call = getattr(operator, "call", lambda function, *args: function(*args))  # the first since Python 3.11
_FORWARD, _DATA, _RECOMPUTE, _EVALUATION = (
    engine.FORWARD, engine.DATA, engine.RECOMPUTE, engine.EVALUATION)


class ModuleCalls:
    def __init__(self, observer, torch):
        self._observer = observer
        self._module = torch.nn.Module
        self._original = None
        self._replaced = replaced.Replaced()
        self._code = None  # of the wrapper
        self._enter_by = self._leave_by = None  # set the functions by which the wrapper enters and leaves a call
        self._slots = {}
        self._trained = {}  # id of a root's place -> (in how many steps training has called it, the last of them)
        self._holders = holders.Holders(torch)
        self.lent = lent_inputs.LentInputs(observer)
        self.function_state = function_state.FunctionState(observer)
        self.needed = lent_inputs.NeededMemory(observer, torch)
        self.recomputed = recomputed.Recomputed(observer, torch, _state_of_buffers, _kept_buffers)
        self._gradients = torch.is_grad_enabled
        self._graph_task = nodes.Nodes(torch).graph_task

    def install(self):
        self._original = self._module.__call__
        wrapper = self._wrap(self._observer.operations.module_call(self._original))
        self._code = wrapper.__code__
        for name in "__call__", self._original.__name__:  # torch has one function under both names
            if vars(self._module).get(name) is self._original:
                self._replaced.set(self._module, name, wrapper)

    def remove(self):
        self._replaced.put_back()

    def forget(self):
        self._slots.clear()
        self._trained.clear()
        self.function_state.forget()

    def _count_training(self, place):
        """Counts the steps in which training has called a root. @return their number, including this one; 0 in further calls
        of the same step. The counts of the place are no substitute: they include evaluation."""
        count, last = self._trained.get(place.id, (0, -1))
        if last == self._observer.step:
            return 0
        self._trained[place.id] = count + 1, self._observer.step
        return count + 1

    def slot(self, kind, name):
        """@return the id of a slot such as "input:0", "output:1", "grad_output:0"."""
        number = self._slots.get((kind, name))
        if number is None:
            number = self._slots[kind, name] = self._observer.port.intern("%s:%s" % (kind, name))
        return number

    def _wrap(self, original):
        """@return the wrapper of __call__. It is a closure for speed, since it runs at every module call. If torch's own
        function only passes its arguments on, the wrapper replaces it, so that the depth of recursion is unchanged."""
        is_folded = self._observer.is_folded
        enter, leave, stopped, recompute = self._observer.hot.enter, self._observer.hot.leave, self._stopped, _RECOMPUTE

        def enter_by(function):
            nonlocal enter
            enter = function

        def leave_by(function):
            nonlocal leave
            leave = function

        self._enter_by, self._leave_by = enter_by, leave_by
        if original is self._original and _only_passes_on(original):
            @functools.wraps(original)
            def __call__(self, *args, **kwargs):
                if is_folded():
                    return original(self, *args, **kwargs)
                call = enter(self, args, kwargs)
                try:
                    if self._compiled_call_impl is not None:
                        result = self._compiled_call_impl(*args, **kwargs)
                    else:
                        result = self._call_impl(*args, **kwargs)
                except BaseException:
                    if call is not None:
                        try:
                            if call[0].slot[1] == recompute:
                                stopped(call, self)
                        finally:
                            try:
                                leave(call, None, None)
                            except RecursionError:  # as deep as it can be; the callers' own leave() restores the state
                                pass
                    raise
                if call is not None:
                    leave(call, self, result)
                return result

            return frames.in_place_of(original, __call__)

        @frames.unseen
        @functools.wraps(self._original)
        def __call__(self, *args, **kwargs):
            if is_folded():
                return original(self, *args, **kwargs)
            call = enter(self, args, kwargs)
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                if call is not None:
                    try:
                        if call[0].slot[1] == recompute:
                            stopped(call, self)
                    finally:
                        try:
                            leave(call, None, None)
                        except RecursionError:  # as above
                            pass
                frames.hide(error)
                raise
            if call is not None:
                leave(call, self, result)
            return result

        return __call__

    def enter(self, module, args, kwargs):
        """Records the beginning of a module's call.
        @return the argument of leave(): thread, entry, slot word of the call, and the previous entry and slot word; None if
        the call is not recorded."""
        observer, entry = self._observer, None
        if observer.compiles():
            return None
        try:
            thread = observer.threads.state
            caller, slot = thread.entry, thread.slot
            if (observer.capture or caller is None) and observer.is_tracing():
                return None  # below a root, tensors are read only where values are wanted
            outer = slot[0]
            entry = observer.names.entry(module)
            if entry is None or caller is None:
                entry = self.find(thread, module, entry, args, kwargs)
            elif caller is entry.wrapper:
                entry = None  # its wrapper is recorded instead
        except Exception as error:
            observer.failed("module call", error)
        if entry is None:
            return None
        place = entry.place
        if place.step != observer.step:
            place.reset(observer.step)
        if slot[1] == _RECOMPUTE:
            number = place.recomputes
            place.recomputes = number + 1
        elif slot[1] == _EVALUATION:
            number = observer.occurrence(place, _EVALUATION, None)
        else:
            number = place.calls
            place.calls = number + 1
        if entry.untold or number == 0:
            observer.module_facts.tell(thread, entry, module)
        call = thread, entry, place.id | number << 32, caller, outer
        try:
            thread.entry, slot[0] = entry, call[2]
            if observer.capture:
                self.entered(thread, entry, module, number, caller is None, args, kwargs)
        except BaseException:
            self._restore(call)
            raise
        return call

    def _stopped(self, call, module):
        """Records the buffers of a module whose recomputation raised. A recomputation is stopped by an exception when the
        backward pass has all it needs; the module may have written its buffers by then."""
        observer, (thread, entry, key) = self._observer, call[:3]
        try:
            if observer.capture and held(module, "_buffers"):
                self.record_buffers(thread, entry, module, key & 0xFFFFFFFF, key >> 32)
        except Exception as error:
            observer.failed("module buffers", error)

    def leave(self, call, module, output):
        """Records the end of a module's call. `module`: None if it raised."""
        observer = self._observer
        try:
            if observer.capture if module is None else observer.follows:
                self.left(*call[:3], module, output)
        finally:
            self._restore(call)

    def look_at_modules(self, look):
        """Sets a function `look(module)` that runs before enter() of each call and does not raise; None removes it."""
        enter = self._observer.hot.enter

        def looking(module, args, kwargs):
            look(module)
            return enter(module, args, kwargs)

        if self._enter_by is not None:
            self._enter_by(enter if look is None else looking)

    def look_at_outputs(self, look):
        """Sets a function `look(call, output)` that runs before leave() of each call that did not raise; None removes it."""
        leave = self._observer.hot.leave

        def before(args, _):
            _, call, module, output = args
            if module is not None:
                look(call, output)

        if look is not None:
            leave = functools.partial(replaced.surrounded(self._observer, _call, before), leave)
        if self._leave_by is not None:
            self._leave_by(leave)

    def _restore(self, call):
        thread, _, _, caller, outer = call
        thread.entry, thread.slot[0] = caller, outer
        if caller is None:
            thread.slot[1] = thread.after_root
            thread.followed.clear()

    def in_backward(self):
        """@return whether this thread runs a backward pass."""
        return self._graph_task() != -1

    @spent.sampled
    def find(self, thread, module, entry, args, kwargs, gradients=None):
        """Finds or makes the Entry of a module that is called at top level or for the first time. At top level, sets the
        phase of the call and the phase after it.
        @param gradients  whether the program has them switched on; None: their current state
        @return the Entry; None if the module is not observed"""
        observer = self._observer
        entry = entry or observer.names.entry(module)
        if entry is None and naming.token(module) is None:
            return None  # no module, or one that was not set up, whose call usually raises
        if thread.entry is not None:
            if entry is not None:  # C++ did not find it by the module's token
                return None if thread.entry is entry.wrapper else entry
            return observer.names.add_called(module, thread.entry, self._running(thread.entry))
        if contents.attribute(module, "_is_replica"):
            return None  # a DataParallel copy on its own thread; the wrapper is recorded
        if not observer.begin(thread):
            return None
        observer.optimizers.forget_raised(thread)
        first, root = entry is None, module
        if first:
            root, attribute = self._holders.of(module)
            entry = observer.names.add_root(root, attribute)
            if root is not module:
                entry = observer.names.entry(module)
        outer = thread.after_root = thread.slot[1]
        if self.in_backward():  # an activation checkpoint
            thread.slot[1] = _RECOMPUTE
            if observer.capture:
                self.recomputed.called(thread)
            return entry
        behind = outer == _EVALUATION
        gradients = self._gradients() if gradients is None else gradients
        if not observer.steps.sees_optimizer and (gradients or entry.weights is not None):
            changed = observer.optimizers.note_weights(entry, module)
            if changed and observer.steps.misses_optimizer(entry):
                observer.optimizers.record_unseen(thread, module)
                observer.steps.unseen_optimizer_ended()
        gradients = gradients and not (behind and self._goes_on(module, args))
        opened, evaluates = observer.steps.root_forward(
            entry, mode_of(module, False), gradients, behind, observer.optimizers.any_made)
        thread.slot[1] = _EVALUATION if evaluates else _FORWARD
        if behind or outer == _FORWARD:
            thread.after_root = thread.slot[1]  # code after evaluation belongs to it: a loss, a metric
        if opened:
            observer.open_step(thread)
        elif behind and not evaluates:
            observer.tell_generators(thread)  # evaluation, or the data since then, may have drawn random numbers
        if observer.capture:
            written = observer.hot.ask(module, observer.optimizers.are_still(thread))
            if written is not None:
                observer.optimizers.record_written(thread, written)
            if not evaluates:
                self.lent.note(entry.place, args, kwargs)
                count = self._count_training(entry.place)
                self.needed.note(entry.place, module, count)
                if is_power(count):
                    observer.hook_facts.look(thread, module)
                    self.recomputed.begin(module)
                self.recomputed.record_written(thread, module)
            if first or entry.unrecorded:
                entry.unrecorded = observer.optimizers.record_initial(thread, root)
            if first:
                self._record_initial_buffers(thread, root)
        return entry

    def _running(self, entry):
        """@return the running module of an entry, from the frame of its wrapper; None if there is no such frame."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code is self._code:
                module = frame.f_locals["self"]
                if self._observer.names.entry(module) is entry:
                    return module
            frame = frame.f_back
        return None

    def _goes_on(self, module, args):
        """@return whether a module that is called after evaluation is a criterion of it: it has no weights, and takes
        outputs that a model computed with gradients switched on."""
        if any(True for _, child, _ in naming.walk(module) for _, one in held(child, "_parameters") if one is not None):
            return False
        with self._observer.read.unobserved():
            return any(self._observer.read.bare(tensor).requires_grad for tensor in self._observer.read.tensors(args))

    @spent.sampled
    def entered(self, thread, entry, module, call, top, args, kwargs):
        observer, place = self._observer, entry.place
        try:
            batch, read, phase = thread.batch, observer.read, thread.slot[1]
            capture, at_phase, at_call = engine.HASH, phase, call
            if top and phase == _EVALUATION:
                capture = observer.full
            elif top and phase == _FORWARD:
                capture, at_phase, at_call = observer.full, _DATA, place.inputs
                place.inputs += 1
            with read.unobserved():
                if entry.buffers is None:
                    entry.buffers = _state_of_buffers(module)
                batch.scope(phase, 1, place.id, call)
                for name, tensor in self.named_inputs(args, kwargs):
                    slot = self.slot("input", name)
                    if entry.pad_index is None or name not in padding.INDICES:
                        observer.pack(batch, at_phase, capture, place.id, at_call, slot, tensor)
                    elif (value := read(tensor)) is not None:
                        batch.tensor(at_phase, padding.capture(value, observer.full), place.id,
                                     at_call, slot, 0, value, (engine.EMBEDDING, entry.pad_index))
            observer.submit(thread)
        except Exception as error:
            observer.failed("module inputs", error)

    def named_inputs(self, args, kwargs):
        tensors = self._observer.read.tensors
        yield from enumerate(tensors(args))
        for name, structure in kwargs.items():
            found = tensors(structure)
            if len(found) == 1:
                yield name, found[0]
            else:
                for index, tensor in enumerate(found):
                    yield "%s.%d" % (name, index), tensor

    @spent.sampled
    def left(self, thread, entry, key, module, output):
        """Records the outputs of a call and hooks their gradients. If no values are wanted, only CUDA tensors are hooked,
        whose launches in the backward pass need scopes. `module`: None if the call raised."""
        observer = self._observer
        try:
            batch, phase = thread.batch, thread.slot[1]
            scope, call = key & 0xFFFFFFFF, key >> 32
            capture = observer.capture
            with observer.read.unobserved():
                for index, tensor in enumerate(observer.read.tensors(output)):
                    packed = capture and observer.pack(
                        batch, phase, observer.full, scope, call, self.slot("output", index), tensor)
                    bare = observer.read.bare(tensor)
                    if (packed or bare.is_cuda) and bare.requires_grad:
                        gradients.follow(observer.hooks, thread, tensor, (key, self.slot("grad_output", index)))
                if capture and module is not None and held(module, "_buffers"):
                    self.record_buffers(thread, entry, module, scope, call)
            if capture:
                batch.scope(phase, 0, scope, call)
                observer.submit(thread)
        except Exception as error:
            observer.failed("module outputs", error)

    @spent.sampled
    def _record_initial_buffers(self, thread, root):
        """Records the buffers of a root before its first forward."""
        observer = self._observer
        try:
            with observer.read.unobserved():
                for entry, module in observer.names.modules(root):
                    if entry.buffers is not None:
                        continue
                    entry.buffers = _state_of_buffers(module)
                    self.pack_initial(thread.batch, entry, module)
            observer.submit(thread)
        except Exception as error:
            observer.failed("buffers", error)

    def pack_initial(self, batch, entry, module):
        """Packs hashes of a module's buffers as they are before a forward pass. Statistics would mislead: a buffer may be
        memory that the program has not written yet, or a mask of infinities."""
        for name, tensor in _kept_buffers(module):
            if not naming.is_lazy(tensor):
                self._observer.pack(batch, _FORWARD, engine.HASH, entry.place.id, 0, self.slot("buffer_initial", name), tensor)

    def record_buffers(self, thread, entry, module, scope, call):
        """Records all buffers of a module if one of them has changed since the last check. Kernels of batch norm write the
        running statistics past torch's count of writes, but the write to its own count of calls is seen."""
        with self._observer.read.unobserved():
            state = _state_of_buffers(module)
            if state == entry.buffers:
                return
            entry.buffers = state
            if thread.slot[1] == _RECOMPUTE:
                self.recomputed.wrote(entry)
            for name, tensor in _kept_buffers(module):
                self._observer.pack(thread.batch, thread.slot[1], self._observer.full, scope, call,
                                    self.slot("buffer", name), tensor)


def _kept_buffers(module):
    """@return [(name, tensor)] of the persistent buffers. Others are caches, whose memory may be uninitialized."""
    buffers = held(module, "_buffers")
    passing = own(module, "_non_persistent_buffers_set") if buffers else ()
    if not issubclass(type(passing), set):
        passing = ()
    return [(name, tensor) for name, tensor in buffers
            if tensor is not None and not (passing and set.__contains__(passing, name))]


def _state_of_buffers(module):
    """@return the identity and the count of writes of each persistent buffer."""
    return tuple((id(tensor), values.version(tensor)) for _, tensor in _kept_buffers(module))


def _only_passes_on(function):
    """@return whether a function is Module._wrapped_call_impl as torch has it since 2.1."""
    return function.__code__.co_names == ("_compiled_call_impl", "_call_impl")
