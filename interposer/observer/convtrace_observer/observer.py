"""Puts the parts together in a process whose program has imported torch."""
import atexit
import functools
import os
import sys

from . import dynamo
from .base import engine, frames, native, replaced, scopes, signals, spent, values, watches
from .calls import aten_ops, awaited, collectives, gradients, modules, naming, ops, padding, repeated_ops, reused_outputs
from .compiled import regions, triton_kernels, tuning
from .facts import hooks, program_facts, sources, versions
from .training import backward, clipping, optimizer, steps

_MAX_FAILURES = 5
_ROOM = 64  # calls: more than nest in the observer
_COMPILING = "_is_compiling_flag"  # a variable of torch.compiler


class State:
    """The state that every call reads, also in interposer/core/python/hot_path.cpp.

    `capture`: values of the current step are wanted. `follows`: module outputs are of interest, for
    their values or for the scopes of their backward pass. `flags`: the engine's last answer. `walk`: counts the
    steps that began and the times that modules were named or asked for their parameters; `step_walk`: its value at the
    beginning of this step. `epoch`: 1 + the number of updates of weights that were not recorded; each one invalidates the
    marks that were taken of weights before it.
    """

    __slots__ = ("active", "capture", "follows", "step", "flags", "walk", "step_walk", "epoch")

    def __init__(self):
        self.active = self.capture = self.follows = False
        self.step = self.flags = self.walk = self.step_walk = 0
        self.epoch = 1


class Observer(State):
    """All of the observer's state, and its hooks in torch."""

    def __init__(self, torch, port):
        super().__init__()
        self._torch = torch
        self.port = port
        self._begun = False
        self._imported = 0  # number of modules when their code was last recorded
        self._failures = []  # texts
        self._failures_told = 0
        self._replaced = replaced.Replaced()
        self.full = engine.STATS  # at most: mode and rules decide in the engine
        self._only_launches = port.setting("CONVTRACE_MODE") == "launches"
        sources.are_recorded = port.setting("CONVTRACE_SOURCE") == "1"
        self.is_compiling = _compile_guard(torch)
        self.is_folded, self.compiler = _cheap_compile_guard(torch) or (self.is_compiling, {})
        self.is_tracing = torch._C._get_tracing_state  # torch.jit.trace records every read
        self.threads = scopes.Threads(port)
        self.names = naming.Names(self)
        self.steps = steps.Steps()
        self.read = values.TensorReader(torch)
        self.hooks = gradients.Hooks(self, torch)
        self.watches = watches.Watches(port, self.read)
        self.tuning = tuning.Tuning(self)
        self.operations = aten_ops.AtenOps(self, torch)
        self.module_facts = program_facts.ModuleFacts(self, torch)
        self.hook_facts = hooks.Hooks(self)
        self.marks = program_facts.Marks(torch, self.read.unobserved)
        self.generators = program_facts.Generators(torch, self.read.unobserved, self.marks)
        self.repeated_ops = repeated_ops.RepeatedOps(self, torch)
        self.reused_outputs = reused_outputs.ReusedOutputs(self, torch)
        self.modules = modules.ModuleCalls(self, torch)
        self.optimizers = optimizer.Optimizers(self, torch)
        self.backward = backward.Backward(self, torch)
        self.hot = native.choose(port, torch, self.read, self._hot_functions(), self._needed_by_hot_functions(torch))
        self.read.memory, self.read.number_of = self.hot.memory, self.hot.number
        self.awaited = awaited.Awaited(self)
        self.collectives = collectives.Collectives(self, torch)
        self.regions = regions.Regions(self, torch, ops.TORCH_NAMESPACES)
        self._parts = (self.collectives, self.regions, triton_kernels.TritonKernels(self), self.tuning, self.modules,
                       self.optimizers, self.backward, clipping.Clipping(self, torch),
                       ops.CustomOps(self, torch), padding.Labels(self, torch))

    def _hot_functions(self):
        return {"enter": self.modules.enter, "leave": self.modules.leave, "forget": lambda: None, "end": lambda: None,
                "memory": self.read.memory, "number": self.read.number_of, "sweep": self.read.numbers.sweep,
                "operands": lambda *given: False, "ask": self.names.ask,
                "surrounded": lambda *what: None, "gradient": functools.partial(gradients.pass_by, self),
                "backward": self.backward.mark, "parameters": self.optimizers.record_parameters}

    def _needed_by_hot_functions(self, torch):
        """@return the objects that interposer/core/python/hot_path.cpp reads, and the functions that it calls for the work
        that it leaves to Python."""
        return {
            "observer": self, "threads": self.threads, "keeps_thread": self.threads.are_pythons(), "full": self.full, "pack": self.pack,
            "is_tracing": self.is_tracing, "compiler": self.compiler, "tell": self.module_facts.tell,
            "entries": self.names.entries, "owners": self.names.owners, "owner": self.names.owner,
            "find": self.modules.find, "entered": self.modules.entered, "left": self.modules.left,
            "slot": self.modules.slot, "record_buffers": self.modules.record_buffers,
            "hooks": self.hooks, "follow": gradients.follow, "registers": self.hooks.registers,
            "record_gradient": functools.partial(gradients.record, self),
            "record_parameter": self.optimizers.record_parameter,
            "Observer": State, "Thread": scopes.Thread, "Batch": engine.Batch, "Entry": naming.Entry,
            "Place": naming.Place, "Owner": naming.Owner,
            "own": self.names.own}

    def compiles(self):
        """@return whether torch is compiling or exporting, if `is_folded` does not cover that; else False."""
        return self.compiler.get(_COMPILING, False)

    def install(self):
        self.active = True
        self._set_flags(0 if self._only_launches else engine.SUBMIT_CAPTURE)
        dynamo.skip_frames(self._torch, __package__)
        frames.skip = functools.partial(dynamo.skip, self._torch)
        for part in self._parts:
            try:
                part.install()
            except Exception as error:  # a torch that we do not know: the other parts still work
                self._count_failure("%s hooks" % type(part).__name__, error)
        self._watch_exit()
        atexit.register(self._program_ends)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def remove(self):
        """Ends tracing in this process: removes all hooks, so that the program runs on without the observer."""
        self.active = self.capture = self.follows = False
        for part in self._parts:
            part.remove()
        self.watches.clear()
        self._replaced.put_back()

    def begin(self, thread):
        """Starts the trace, before the first record of this process. Other threads may call it meanwhile: start() runs
        without the GIL, and returns to all of them when the engine has started.
        @return whether this process is observed."""
        if not self._begun and self.active:
            if self._is_loader_worker() or not self.port.start():
                self.remove()
            elif not self._begun:
                self._begun = True
                for name, value in versions.collect(self._torch):
                    thread.batch.fact(name, value)
                self.submit(thread)
                self._imported = len(sys.modules)
                self._tell_failures()
        return self.active

    def _tell_last(self):
        """Records the facts that are known only at the end: values that were never waited for, packages imported since the
        first module ran."""
        self.awaited.give_up()
        self.tuning.look()
        if self._begun and self.active and self._imported != len(sys.modules):
            batch = engine.Batch(self.port)
            for name, value in versions.code():
                batch.fact(name, value)
            batch.submit()

    @spent.sampled
    def open_step(self, thread):
        self.tuning.look()
        self.collectives.begin_step(self.steps.index)
        self.awaited.give_up()
        self.hot.sweep()
        self.step = self.steps.index
        self.walk = self.step_walk = self.walk + 1
        thread.batch.step(self.step)
        self.submit(thread)
        self._set_flags(self.flags)  # the program may have begun to use CUDA
        self.tell_generators(thread)

    def tell_generators(self, thread):
        """Records the states of the random generators, before the call of a root."""
        if self.capture:
            self.generators.tell(thread.batch)

    def occurrence(self, place, phase, slot):
        """@return how often this slot of `place` was recorded before in this step and phase."""
        if place.step != self.step:
            place.reset(self.step)
        count = place.parameters.get((phase, slot), 0)
        place.parameters[phase, slot] = count + 1
        return count

    def pack(self, batch, phase, capture, scope, call, slot, tensor, op=0):
        """@return whether the tensor could be read, or will be. Must run inside `with self.read.unobserved()`."""
        if not op and self.awaited.keep(tensor, phase, capture, scope, call, slot):
            return True
        value = self.read(tensor)
        if value is not None:
            batch.tensor(phase, capture, scope, call, slot, op, value)
        return value is not None

    def submit(self, thread):
        """Sends the thread's batch. @return the engine's flags."""
        if self.read.skipped:
            skipped, self.read.skipped = self.read.skipped, 0
            thread.batch.loss(engine.LOST_TENSOR_KIND, skipped)
            refusals, self.read.refusals = self.read.refusals, []
            for text in refusals:
                thread.batch.diagnostic(engine.INFO, "observer", "CT-1304 not read and counted: " + text)
        flags = spent.submit(thread) if thread.began else thread.batch.submit()
        if flags & ~engine.SUBMIT_WATCH != self.flags:
            self._set_flags(flags & ~engine.SUBMIT_WATCH)
        return flags

    def say(self, level, text, site="observer"):
        """Sends a message for the program's user."""
        batch = engine.Batch(self.port)
        batch.diagnostic(level, site, text)
        batch.submit()

    def failed(self, site, error):
        """Handles an exception of the observer. It never reaches the program. An error of torch is a value that was not read.
        Others are counted in the trace, the first is described there, and the fifth ends observation."""
        try:
            is_programs = signals.is_from_handler(error)
        except RecursionError:  # the program is as deep in calls as it can be
            is_programs = False
        if is_programs:
            raise error
        try:
            if isinstance(error, RuntimeError) or not _has_room():  # of C functions, ctypes gives errors of its own
                # Lost, and no failure: deeper calls of the program may follow, other tensors than one that torch refuses to read.
                self.read.skipped += 1
                if type(error) is not RecursionError:
                    self.read.refuse(site, error)
                self.threads.state.batch.messages = []
                return
            self._count_failure(site, error)
            self.threads.state.batch.messages = []
        except RecursionError:
            pass
        except Exception:  # it cannot be told now
            if len(self._failures) >= _MAX_FAILURES:
                self.active = self.capture = self.follows = False

    def _count_failure(self, site, error):
        self._failures.append("%s: %s: %s" % (site, type(error).__name__, error))
        if self._begun:
            self._tell_failures()
        if len(self._failures) >= _MAX_FAILURES:
            self.remove()

    def _tell_failures(self):
        """Records the failures since the last call. Those before begin() could not be sent."""
        batch = engine.Batch(self.port)
        for number, what in enumerate(self._failures[self._failures_told:], self._failures_told + 1):
            batch.loss(engine.LOST_OBSERVER_FAILED, 1)
            if number == 1:
                batch.diagnostic(engine.WARNING, "observer", "CT-1301 " + what)
            elif number == _MAX_FAILURES:
                batch.diagnostic(engine.WARNING, "observer", "CT-1302 %s; modules and tensors are not observed any more" % what)
        self._failures_told = len(self._failures)
        batch.submit()

    def _set_flags(self, flags):
        self.flags = flags
        if flags & engine.SUBMIT_OFF:
            self.remove()
            return
        self.capture = bool(flags & engine.SUBMIT_CAPTURE)
        self.follows = self.capture or (self._only_launches and self._torch.cuda.is_initialized())
        self.regions.switch(self.capture)

    def _is_loader_worker(self):
        """@return whether this process is a DataLoader worker, whose modules are transforms of data and no training."""
        worker = sys.modules.get("torch.utils.data._utils.worker")
        return getattr(worker, "_worker_info", None) is not None

    def _watch_exit(self):
        """Surrounds os._exit, which runs no exit handler. Scripts call it where a library would hang at the end,
        and multiprocessing in each child that it forked."""
        home = sys.modules.get(os._exit.__module__)  # posix: by this name it is pickled
        self._replaced.surround(self, home, "_exit", self._exits)
        self._replaced.set(os, "_exit", home._exit)

    def _exits(self, args, named):
        try:
            if self._begun and self.active:
                self._tell_last()
                status, = args or named.values()
                self._finish(str(status & 0xff))
        except Exception as error:
            signals.let_pass(error)

    def _program_ends(self):
        """Ends observation at the exit of the process. After an interrupt Python ends itself by the signal, so that the
        engine's own exit handler never runs: the trace is closed here."""
        self._tell_last()
        self.collectives.finish()
        complaint = self.operations.complaint() if self._begun and self.active else None
        if complaint:
            self.say(engine.WARNING, "CT-1303 " + complaint, "operations")
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            self._finish("SIGINT")
        self.remove()  # finalizers of the program may still call modules
        self.hot.end()

    def _finish(self, status):
        batch = engine.Batch(self.port)
        batch.fact("exit.status", status)
        batch.submit()
        self.port.finish()

    def _forked(self):
        """Resets the observer in a forked child, where the engine starts anew or is off: numbers from the parent's
        engine are invalid."""
        if self.active:
            self._begun = False
            self.port.forget_texts()
            self.names.clear()
            self.modules.forget()
            self.optimizers.forget()
            self.backward.forget()
            self.repeated_ops.forget()
            self.collectives.forget()
            self.regions.forget()
            self.awaited.forget()
            self.hot.forget()
            self.hooks.clear()
            self.watches.clear()
            self.steps = steps.Steps()
            self.step = 0
            self.threads.state.clear()


def _has_room(calls=_ROOM):
    """@return whether this many further calls may nest in this thread."""
    try:
        return calls == 0 or _has_room(calls - 1)
    except RecursionError:
        return False


def _compile_guard(torch):
    """@return the function that Dynamo folds to True in a compiled region."""
    compiler = getattr(torch, "compiler", None)
    guard = getattr(compiler, "is_compiling", None)
    if guard is None:  # torch 2.0; 1.13 has no compiler
        dynamo = sys.modules.get("torch._dynamo")
        guard = getattr(dynamo, "is_compiling", None)
    return guard if guard is not None else lambda: False


def _cheap_compile_guard(torch):
    """@return the two parts of that function, which take a third of its time: one that Dynamo folds to True, and the
    variables of torch.compiler, whose _is_compiling_flag is set while torch compiles or exports. None if this torch lacks one."""
    compiler = getattr(torch, "compiler", None)
    folded, names = getattr(compiler, "is_dynamo_compiling", None), vars(compiler) if compiler is not None else {}
    return (folded, names) if folded is not None and _COMPILING in names else None


def start(torch):
    """Called by arrival once torch is imported."""
    port = engine.Engine.load(os.environ["CONVTRACE_CORE"])
    if port.start():
        Observer(torch, port).install()
