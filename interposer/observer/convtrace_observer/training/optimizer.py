"""Records the optimizer phase: gradients before the optimizer's step, parameters after it."""
import functools
import importlib
import itertools
import sys
import types

from ..base import contents, engine, frames, held, replaced, spent, values, weight_marks
from ..facts import placements, program_facts
from . import left_gradients, shared_memory

_NOTED = 8  # checked weights of a root
# Attributes of an optimizer that are read before and after each step.
_BEFORE, _BEHIND = (program_facts.TOKEN, "param_groups", "state"), ("param_groups", "state")
_GONE_BY = 16  # a root without trained weights skips one check for each so many of its modules


class _Step:
    """An optimizer's step under way, or one that raised. `before`: the earlier content of the thread's slot. `known`: the
    optimizer's recorded facts. `unread`: whether its gradients are still to be read. `frame`: _key_of() the frame that runs
    the step. It refers to no object of the program, since a step that raised stays in the list for a while.

    A step that it calls for some of the same parameter groups is a part of it: that of the base class, or of an optimizer that
    this one wraps. `groups`: what each group has for itself."""

    __slots__ = ("optimizer", "groups", "thread", "before", "known", "frame", "unread")

    def __init__(self, optimizer, groups, thread, before, known, frame):
        self.optimizer, self.groups, self.thread = id(optimizer), _keys_of(groups), id(thread)
        self.before, self.known, self.frame = before, known, frame
        self.unread = True

    def is_of(self, optimizer, groups):
        return self.optimizer == id(optimizer) or not self.groups.isdisjoint(_keys_of(groups))


class Optimizers:
    """Global step hooks, or for torch below 2.0 a wrapper of each optimizer class's `step`;
    and GradScaler, which may skip the step."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._torch = torch
        self._hooked = ()  # torch's dictionaries of hooks of all optimizers
        self._scalers = []
        self._replaced = replaced.Replaced()
        self._keeps_state = observer.port.setting("CONVTRACE_OPTIMIZER_STATE") == "1"
        self._unwrap_steps = lambda: None
        self._facts = program_facts.OptimizerFacts(observer)
        self._shared = shared_memory.SharedMemory(observer, torch, self._of_groups)
        self.left = left_gradients.LeftGradients(observer, torch)
        self._steps = []  # of all threads, which append and remove each their own; a nested step follows the outer one

    def install(self):
        # 1.13 deletes the submodule as an attribute of torch.optim.
        module = importlib.import_module("torch.optim.optimizer")
        if hasattr(module, "_global_optimizer_pre_hooks"):
            # Not by torch's functions: a hook that the program registers would have another number.
            self._hooked = module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks
            for hooks, ours in zip(self._hooked, (self._before_step, self._after_step)):
                hooks[__name__] = ours
        else:
            self._wrap_steps(module.Optimizer)
        self._replaced.wrap(getattr(self._torch.optim, "LBFGS", None), "_gather_flat_grad", self._taken)
        for path in ("amp", "cuda.amp"):
            kind = self._torch
            for name in path.split(".") + ["GradScaler"]:
                kind = getattr(kind, name, None)
            if kind is not None and "step" in vars(kind):
                self._wrap_scaler(kind)

    def remove(self):
        for hooks in self._hooked:
            hooks.pop(__name__, None)
        self._replaced.put_back()
        self._unwrap_steps()  # the wrappers that remain only pass calls on
        for kind, original in self._scalers:
            if getattr(kind.step, "__wrapped__", None) is original:
                kind.step = original

    def forget(self):
        self._facts = program_facts.OptimizerFacts(self._observer)
        self._shared = shared_memory.SharedMemory(self._observer, self._torch, self._of_groups)
        self.left = left_gradients.LeftGradients(self._observer, self._torch)
        self._steps = []

    def any_made(self):
        """@return whether the program has made an optimizer: torch marks the class of each."""
        steps = (contents.found_in(kind, "step") for kind in _subclasses(self._torch.optim.Optimizer))
        return any(type(step) is types.FunctionType and step.__dict__.get("hooked", False) for step in steps)

    def _wrap_steps(self, base):
        """Optimizer.__init__ calls _hook_for_profile, which wraps the `step` of its class once."""
        observer, hook = self._observer, base._hook_for_profile

        def _hook_for_profile(optimizer):
            hook(optimizer)
            kind = type(optimizer)
            if observer.active and not hasattr(kind.step, "_convtrace"):
                kind.step = self._observed_step(kind.step)

        base._hook_for_profile = _hook_for_profile
        self._unwrap_steps = functools.partial(setattr, base, "_hook_for_profile", hook)

    def _observed_step(self, original):
        @functools.wraps(original)
        def step(optimizer, *args, **kwargs):
            if not self._observer.active:
                return original(optimizer, *args, **kwargs)
            self._before_step(optimizer, args, kwargs)
            result = original(optimizer, *args, **kwargs)
            self._after_step(optimizer, args, kwargs)
            return result

        step._convtrace = True
        return step

    def _wrap_scaler(self, kind):
        observer, original = self._observer, kind.step

        @frames.unseen
        @functools.wraps(original)
        def step(scaler, optimizer, *args, **kwargs):
            if observer.active:
                observer.steps.scaler_began()
                self._scale(scaler)
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            except BaseException as error:
                frames.hide(error)
                raise
            if observer.active:
                observer.steps.optimizer_ended()  # also where inf gradients made it skip
            return result

        kind.step = step
        self._scalers.append((kind, original))

    def _before_step(self, optimizer, args, kwargs):
        observer = self._observer
        if observer.is_compiling():
            return
        try:
            try:
                thread = observer.threads.state
                if observer.begin(thread):
                    self._began(thread, optimizer, args, kwargs, _key_of(sys._getframe(1)))
            except Exception as error:
                observer.failed("optimizer pre hook", error)
        except BaseException as error:
            frames.hide_all(error)
            raise

    @spent.sampled
    def _began(self, thread, optimizer, args, kwargs, frame):
        self._observer.steps.sees_optimizer = True
        token, groups, state = contents.several(optimizer, _BEFORE)
        known, is_new = self._facts.meet(optimizer, token)
        if is_new:
            self._count_updates(thread, optimizer)
        self.forget_raised(thread, frame)
        step = self._find(thread, optimizer, groups)
        if step is not None and step.optimizer != id(optimizer):
            self._facts.tell(thread.batch, optimizer, groups, known)
        elif step is None:
            before = thread.slot[0], thread.slot[1]  # forward, or inside of backward
            step = _Step(optimizer, groups, thread, before, known, frame)
            self._steps.append(step)
            thread.slot[0] = 0
            thread.slot[1] = engine.OPTIMIZER
        if not _has_closure(optimizer, args, kwargs):
            self._read_gradients(thread, optimizer, step, groups, state)

    def _own(self, thread):
        """@return the steps of a thread, the outermost first."""
        return [step for step in list(self._steps) if step.thread == id(thread)]

    def _find(self, thread, optimizer, groups):
        """@return the innermost step that an optimizer, or one of its groups, is in on this thread; None if it is in none."""
        return next((step for step in reversed(self._own(thread)) if step.is_of(optimizer, groups)), None)

    def _take(self, thread, steps):
        """Ends steps of this thread, and sets its slot to what it was before the first."""
        if steps:
            thread.slot[0], thread.slot[1] = steps[0].before
        for step in steps:
            self._steps.remove(step)

    def forget_raised(self, thread, new=None):
        """Ends the steps of this thread that raised, of which no hook tells: their frames are not on the stack any more.
        `new`: the frame of a step that begins, which may lie where a frame was that is gone."""
        own = self._own(thread) if self._steps else ()
        if own:
            running, frame = set(), sys._getframe(1)
            while frame is not None:
                running.add(_key_of(frame))
                frame = frame.f_back
            running.discard(new)
            self._take(thread, [step for step in own if step.frame not in running])

    def _taken(self, original):
        """Wraps the function by which LBFGS collects the gradients after each call of the closure."""
        observer = self._observer

        @frames.unseen
        @functools.wraps(original)
        def gather(optimizer, *args, **kwargs):
            try:
                if observer.active and not observer.is_compiling():
                    thread = observer.threads.state
                    groups, state = contents.several(optimizer, _BEHIND)
                    self._read_gradients(thread, optimizer, self._find(thread, optimizer, groups), groups, state)
            except Exception as error:
                observer.failed("gradients of a closure", error)
            try:
                return original(optimizer, *args, **kwargs)
            except BaseException as error:
                frames.hide(error)
                raise

        return gather

    def _read_gradients(self, thread, optimizer, step, groups, state):
        """Reads the gradients, and the settings by which they are used, once per step: for LBFGS, which calls its closure
        repeatedly, those of the first call. A closure's forward pass opens the step that this update ends.
        `step`: None for an optimizer that is in no step."""
        if step is None or not step.unread:
            return
        step.unread = False
        self._facts.tell(thread.batch, optimizer, groups, step.known)
        if self._observer.capture:
            self._observer.hot.parameters(thread, groups, True)
            if step.known.number is not None:
                self._shared.before(thread, step.known.number, groups, state)
                self.left.used(step.known.number, self._of_groups(groups))

    def _after_step(self, optimizer, args, kwargs):
        observer = self._observer
        if observer.is_compiling():
            return
        try:
            try:
                self._ended(observer.threads.state, optimizer, _key_of(sys._getframe(1)))
            except Exception as error:
                observer.failed("optimizer post hook", error)
        except BaseException as error:
            frames.hide_all(error)
            raise

    @spent.sampled
    def _ended(self, thread, optimizer, frame):
        observer = self._observer
        groups, state = contents.several(optimizer, _BEHIND)
        step = self._find(thread, optimizer, groups)
        if step is not None and step.frame != frame:  # a part of that step
            if self._keeps_state and observer.capture and step.optimizer != id(optimizer):
                self.record(thread, engine.OPTIMIZER, self._state(optimizer))
            return
        if step is not None and step.unread:
            self._read_gradients(thread, optimizer, step, groups, state)  # after the closure, which stays unwrapped
        if thread.batch.messages:
            observer.submit(thread)  # facts, where gradients are not read
        if observer.capture:
            observer.hot.parameters(thread, groups, False)
            if step is not None and step.known.number is not None:
                self._shared.after(thread, step.known.number, groups, state)
            if self._keeps_state:
                self.record(thread, engine.OPTIMIZER, self._state(optimizer))
        else:
            observer.epoch += 1
        observer.steps.optimizer_ended()
        if step is not None:
            own = self._own(thread)
            self._take(thread, own[own.index(step):])

    def are_still(self, thread):
        """@return whether writes to weights were made by the program itself: its optimizers are known, and none is in
        its step. An optimizer that calls the program back has written nothing until it has taken the gradients."""
        return self._observer.steps.sees_optimizer and all(
            step.unread and step.thread == id(thread) for step in list(self._steps))

    @spent.sampled
    def record_written(self, thread, written):
        """Records parameters that the program has written itself since their last record, before they are used.
        `written`: [(parameter, owner)]"""
        with self._observer.read.unobserved():
            for parameter, owner in written:
                slot = self._observer.port.intern("param_written:" + owner.name)
                self._pack_weight(thread, thread.slot[1], parameter, owner, slot)
        self._observer.submit(thread)

    def record_initial(self, thread, root):
        """Records the parameters of a root before its first forward, and how they are divided among ranks.
        @return whether there are more, in lazy modules"""
        parameters, lazy = self._observer.names.unrecorded_parameters(root)
        for parameter, owner in parameters:
            placement = placements.text_of(parameter)
            if placement:
                thread.batch.event_fact(owner.place.id, "placement." + owner.name, placement)
        self._record_weights(thread, engine.FORWARD, parameters)
        return lazy

    def note_weights(self, entry, root):
        """Notes the versions of a root's weights at its call, in a program whose optimizer was not seen yet.
        @return whether one of these weights was written since the last such call."""
        if entry.rests:
            entry.rests -= 1
            return False
        with self._observer.read.unobserved():
            now = {id(one): values.version(one) for one in itertools.islice(self._trained(root), _NOTED)}
        if not now:
            entry.rests = sum(1 for _ in self._observer.names.modules(root)) // _GONE_BY
        before, entry.weights = entry.weights, now
        return before is not None and any(before.get(key, version) != version for key, version in now.items())

    def _trained(self, root):
        """Yields the parameters of a tree that require a gradient."""
        for _, module in self._observer.names.modules(root):
            for _, parameter in held(module, "_parameters"):
                if parameter is not None and self._observer.read.bare(parameter).requires_grad:
                    yield parameter

    def record_unseen(self, thread, root):
        """Records parameters that an unobserved optimizer has updated."""
        if self._observer.capture:
            self._record_weights(thread, engine.OPTIMIZER, self._observer.names.parameters(root))
        else:
            self._observer.epoch += 1

    def _count_updates(self, thread, optimizer):
        before = self._observer.steps.updates_before(self._counter(optimizer))
        if before is not None:
            thread.batch.fact("steps.updates_before", str(before))
            self._observer.submit(thread)

    def _counter(self, optimizer):
        """@return the number of updates in the optimizer's own counter; 0 if it has none, or has it on a device."""
        states = contents.by_identity(contents.attribute(optimizer, "state"))
        for group in contents.elements(contents.attribute(optimizer, "param_groups")):
            for parameter in contents.elements(contents.value_at(group, "params")):
                count = contents.value_at(states.get(id(parameter)), "step")
                if count is None:
                    count = contents.value_at(group, "step")
                if issubclass(type(count), self._torch.Tensor):
                    with self._observer.read.unobserved():
                        value = self._observer.read(count)
                    count = values.scalar(value) if value is not None else None
                if type(count) in (int, float):
                    return int(count)
        return 0

    def _of_groups(self, groups):
        for group, settings in enumerate(contents.elements(groups)):
            for index, parameter in enumerate(contents.elements(contents.value_at(settings, "params"))):
                if issubclass(type(parameter), self._torch.Tensor):
                    yield parameter, self._observer.names.owner(parameter, group, index)

    def _state(self, optimizer):
        """Yields the optimizer's state of each parameter, with slots such as state:weight.exp_avg."""
        states = contents.by_identity(contents.attribute(optimizer, "state"))
        for parameter, owner in self._of_groups(contents.attribute(optimizer, "param_groups")):
            for key, tensor in contents.items(states.get(id(parameter))):
                if issubclass(type(tensor), self._torch.Tensor):
                    yield tensor, owner.place, self._observer.port.intern(
                        "state:%s.%s" % (owner.name, key))

    def _scale(self, scaler):
        """Records the factor by which the loss was scaled."""
        observer, scale = self._observer, contents.attribute(scaler, "_scale")
        try:
            if observer.capture and scale is not None:
                self.record(observer.threads.state, engine.OPTIMIZER, (
                    (scale, observer.names.place(""), observer.port.intern("loss_scale")),))
        except Exception as error:
            observer.failed("loss scale", error)

    @spent.sampled
    def record_parameters(self, thread, groups, of_gradients):
        """Records the parameters in the groups of an optimizer, or their gradients."""
        for parameter, owner in self._of_groups(groups):
            self.record_parameter(thread, parameter, owner, of_gradients)
        self._observer.submit(thread)

    def record_parameter(self, thread, parameter, owner, of_gradients):
        with self._observer.read.unobserved():
            if not of_gradients:
                self._pack_weight(thread, engine.OPTIMIZER, parameter, owner, owner.parameter_slot)
            elif (gradient := self._observer.read.bare(parameter).grad) is not None:
                self._pack(thread, engine.BACKWARD, gradient, owner.place, owner.gradient_slot)

    @spent.sampled
    def _record_weights(self, thread, phase, weights):
        """`weights`: (parameter, owner)."""
        with self._observer.read.unobserved():
            for parameter, owner in weights:
                self._pack_weight(thread, phase, parameter, owner, owner.parameter_slot)
        self._observer.submit(thread)

    def _pack_weight(self, thread, phase, parameter, owner, slot):
        value = self._pack(thread, phase, parameter, owner.place, slot)
        if value is not None:
            weight_marks.mark(self._observer, parameter, owner, value)

    @spent.sampled
    def record(self, thread, phase, items):
        """Records `items`: (tensor, place, slot)."""
        with self._observer.read.unobserved():
            for tensor, place, slot in items:
                self._pack(thread, phase, tensor, place, slot)
        self._observer.submit(thread)

    def _pack(self, thread, phase, tensor, place, slot):
        observer = self._observer
        value = observer.read(tensor)
        if value is not None:
            call = observer.occurrence(place, phase, slot)
            thread.batch.tensor(phase, observer.full, place.id, call, slot, 0, value)
        return value


def _has_closure(optimizer, args, kwargs):
    """@return whether step() has a closure, which it calls for forward and backward. Gradients before that call are those of
    the previous step, or do not exist."""
    given = kwargs.get("closure")
    for one in args:
        if given is None and one is not optimizer:
            given = one
    return callable(given)


def _keys_of(groups):
    return frozenset(map(id, contents.elements(groups))) if issubclass(type(groups), list) else frozenset()


def _key_of(frame):
    """@return what no other frame has that is on the stack at the same time."""
    return id(frame), id(frame.f_code)


def _subclasses(kind):
    for one in type.__subclasses__(kind):
        yield one
        yield from _subclasses(one)
