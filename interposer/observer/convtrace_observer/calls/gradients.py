"""Gradients of module outputs, by hooks on the tensors.

The global full backward hook of torch would turn outputs into views, which breaks models that
modify them in place.
"""
from ..base import engine, spent


class GradHook:
    """On one tensor: the modules whose output it is, innermost first. Holds no tensor."""

    __slots__ = ("_observer", "_targets")
    __torch_unserializable__ = True  # torch.save of the tensor stays silent

    def __init__(self, observer, target):
        self._observer = observer
        self._targets = [target]

    def __call__(self, gradient):
        observer = self._observer
        if observer.is_compiling() or observer.is_tracing() or not observer.active:
            return
        try:
            thread = observer.threads.state
            thread.slot[0] = self._targets[0][0]
            thread.slot[1] = engine.BACKWARD
            if observer.capture and gradient is not None:
                self._record(thread, gradient)
        except Exception as error:
            observer.failed("gradient hook", error)

    def also(self, target):
        self._targets.append(target)

    @spent.sampled
    def _record(self, thread, gradient):
        observer = self._observer
        with observer.read.unobserved():
            value = observer.read(gradient)
        if value is not None:
            for key, slot in reversed(self._targets):
                thread.batch.tensor(engine.BACKWARD, observer.full, key & 0xFFFFFFFF, key >> 32,
                                    slot, 0, value)
            observer.submit(thread)


def follow(observer, tensor, target):
    """Hooks a module's output. `target`: slot word of the module call, id of "grad_output:i"."""
    if tensor.grad_fn is None:
        return  # a leaf outlives the call, and hooks on it would pile up
    hooks = tensor._backward_hooks  # after grad_fn, which renews a view whose base was written
    for hook in hooks.values() if hooks else ():
        if type(hook) is GradHook:
            hook.also(target)
            return
    tensor.register_hook(GradHook(observer, target))
