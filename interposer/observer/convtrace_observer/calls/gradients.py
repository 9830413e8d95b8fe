"""Gradients of module outputs, by hooks on the tensors.

The global full backward hook of torch would turn outputs into views, which breaks models that
modify them in place.
"""
from ..base import engine, spent

_MAX_HOOKS = 1 << 16


class GradHook:
    """On tensors: the modules whose output they are, innermost first. Holds no tensor."""

    __slots__ = ("_observer", "targets")
    __torch_unserializable__ = True  # torch.save of the tensor stays silent

    def __init__(self, observer, targets):
        self._observer = observer
        self.targets = targets

    def __call__(self, gradient):
        if not self._observer.is_folded():
            self._observer.hot.gradient(self.targets, gradient)


class Hooks(dict):
    """From targets to their hook, made at first use, since the same modules return in each step."""

    def __init__(self, observer):
        self._observer = observer

    def __missing__(self, targets):
        if len(self) == _MAX_HOOKS:
            self.clear()
        hook = self[targets] = GradHook(self._observer, targets)
        return hook


def pass_by(observer, targets, gradient):
    """What a hook does. `targets`: as GradHook has them."""
    if observer.compiles() or observer.is_tracing() or not observer.active:
        return
    try:
        thread = observer.threads.state
        thread.slot[0] = targets[0][0]
        thread.slot[1] = engine.BACKWARD
        if observer.capture and gradient is not None:
            record(observer, thread, targets, gradient)
    except Exception as error:
        observer.failed("gradient hook", error)


@spent.sampled
def record(observer, thread, targets, gradient):
    with observer.read.unobserved():
        for key, slot in reversed(targets):
            observer.pack(thread.batch, engine.BACKWARD, observer.full, key & 0xFFFFFFFF, key >> 32, slot, gradient)
    observer.submit(thread)  # also what could not be read


def follow(hooks, tensor, target):
    """Hooks a module's output. `target`: slot word of the module call, id of "grad_output:i"."""
    if tensor.grad_fn is None:
        return  # a leaf outlives the call, and hooks on it would pile up
    present = tensor._backward_hooks  # after grad_fn, which renews a view whose base was written
    for number, hook in present.items() if present else ():
        if type(hook) is GradHook:
            present[number] = hooks[hook.targets + (target,)]
            return
    tensor.register_hook(hooks[target,])


def registers_as_known(torch):
    """Whether Tensor.register_hook does what hot_path.cpp does in its place: it makes the tensor's dictionary of hooks,
    registers that with the tensor's node, and puts the hook into it."""
    code = getattr(torch.Tensor.register_hook, "__code__", None)  # None: another library's own function
    return code is not None and set(code.co_names) == {
        "has_torch_function_unary", "handle_torch_function", "Tensor", "register_hook", "requires_grad", "RuntimeError",
        "_backward_hooks", "OrderedDict", "grad_fn", "_register_hook_dict", "torch.utils.hooks", "RemovableHandle", "id"}
