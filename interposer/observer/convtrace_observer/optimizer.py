"""The optimizer phase: gradients as the optimizer takes them, parameters as it leaves them."""
import functools
import importlib

from . import engine


class Optimizers:
    """Global step hooks, or for torch below 2.0 a wrapper of each optimizer class's `step`;
    and GradScaler, which may skip the step."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._torch = torch
        self._handles = []
        self._scalers = []
        self._unwrap_steps = lambda: None

    def install(self):
        # 1.13 deletes the submodule as an attribute of torch.optim.
        module = importlib.import_module("torch.optim.optimizer")
        if hasattr(module, "register_optimizer_step_pre_hook"):
            self._handles = [module.register_optimizer_step_pre_hook(self._before_step),
                             module.register_optimizer_step_post_hook(self._after_step)]
        else:
            self._wrap_steps(module.Optimizer)
        for path in ("amp", "cuda.amp"):
            kind = self._torch
            for name in path.split(".") + ["GradScaler"]:
                kind = getattr(kind, name, None)
            if kind is not None and "step" in vars(kind):
                self._wrap_scaler(kind)

    def remove(self):
        for handle in self._handles:
            handle.remove()
        self._unwrap_steps()  # classes that are wrapped already pass through
        for kind, original in self._scalers:
            if getattr(kind.step, "__wrapped__", None) is original:
                kind.step = original

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

        @functools.wraps(original)
        def step(scaler, optimizer, *args, **kwargs):
            result = original(scaler, optimizer, *args, **kwargs)
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
            thread = observer.threads.state
            if not observer.begin(thread):
                return
            thread.slot[0] = 0
            thread.slot[1] = engine.OPTIMIZER
            if observer.capture:
                self._record(thread, engine.BACKWARD, (
                    (parameter.grad, owner, owner.gradient_slot)
                    for parameter, owner in self._parameters(optimizer)
                    if parameter.grad is not None))
        except Exception as error:
            observer.failed("optimizer pre hook", error)

    def _after_step(self, optimizer, args, kwargs):
        observer = self._observer
        if observer.is_compiling():
            return
        try:
            thread = observer.threads.state
            if observer.capture:
                self._record(thread, engine.OPTIMIZER, (
                    (parameter, owner, owner.parameter_slot)
                    for parameter, owner in self._parameters(optimizer)))
            observer.steps.optimizer_ended()
            thread.slot[1] = engine.FORWARD
        except Exception as error:
            observer.failed("optimizer post hook", error)

    def record_initial(self, thread, root):
        """Parameters of a root as its first forward finds them."""
        self._record(thread, engine.FORWARD, (
            (parameter, owner, owner.parameter_slot)
            for parameter, owner in self._observer.names.unrecorded_parameters(root)))

    def _parameters(self, optimizer):
        for group, settings in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(settings["params"]):
                yield parameter, self._observer.names.owner(parameter, group, index)

    def _record(self, thread, phase, items):
        observer = self._observer
        with observer.read.unobserved():
            for tensor, owner, slot in items:
                value = observer.read(tensor)
                if value is not None:
                    call = observer.occurrence(owner.place, phase, slot)
                    thread.batch.tensor(phase, observer.full, owner.place.id, call, slot, 0, value)
        observer.submit(thread)
