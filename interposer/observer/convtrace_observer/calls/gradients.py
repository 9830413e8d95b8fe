"""Records gradients of module outputs, by hooks on the tensors.

The global full backward hook of torch would turn outputs into views, which breaks models that
modify them in place.
"""
import collections

from ..base import contents, engine, spent

_MAX_HOOKS = 1 << 16
_KEY = "convtrace"  # of our hook, in its list


class GradHook:
    """The hook of a tensor. `targets`: (slot word, slot) of the modules whose output it is, innermost first. Holds no tensor."""

    __slots__ = ("_observer", "targets")
    __torch_unserializable__ = True  # torch.save of the tensor stays silent, where the tensor has it

    def __init__(self, observer, targets):
        self._observer = observer
        self.targets = targets

    def __call__(self, gradient):
        if not self._observer.is_folded():
            self._observer.hot.gradient(self.targets, gradient)


class Hooks(dict):
    """Maps targets to their hook, which is made once, since the same modules return in each step."""

    def __init__(self, observer, torch):
        self._observer = observer
        self.registers, self.bare = registers_as_known(torch), observer.read.bare
        self.set_hooks = contents.found_in(torch.Tensor, "_backward_hooks").__set__

    def __missing__(self, targets):
        if len(self) == _MAX_HOOKS:
            self.clear()
        hook = self[targets] = GradHook(self._observer, targets)
        return hook


def pass_by(observer, targets, gradient):
    """Records a gradient and sets the thread's scope to its module: the body of a hook. `targets`: those of GradHook."""
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
    observer.submit(thread)  # also the count of unreadable tensors


def follow(hooks, thread, tensor, target):
    """Hooks a module's output. `target`: slot word of the module call, id of "grad_output:i".

    Does the same as Tensor.register_hook, except that the tensor's own list of hooks stays the program's: ours is at the
    node of autograd. A module that returns the output of another one adds itself to that one's hook."""
    bare = hooks.bare(tensor)
    node = bare.grad_fn  # before the hooks: it renews a view whose base was written
    if node is None:
        return  # a leaf outlives the call, and hooks on it would pile up
    if not hooks.registers:
        tensor.register_hook(hooks[target,])
        return
    key = type(node), node._sequence_nr(), bare.output_nr
    ours = thread.followed.get(key)
    if ours is None:
        ours, programs = collections.OrderedDict(), bare._backward_hooks
        hooks.set_hooks(tensor, ours)  # the node takes the hooks from there
        node._register_hook_dict(tensor)
        hooks.set_hooks(tensor, programs)
        ours[_KEY] = hooks[target,]
        thread.followed[key] = ours
    else:
        ours[_KEY] = hooks[ours[_KEY].targets + (target,)]


def registers_as_known(torch):
    """@return whether Tensor.register_hook works as follow() and hot_path.cpp expect, which replace it."""
    code = getattr(torch.Tensor.register_hook, "__code__", None)  # None: another library's own function
    return code is not None and set(code.co_names) == {
        "has_torch_function_unary", "handle_torch_function", "Tensor", "register_hook", "requires_grad", "RuntimeError",
        "_backward_hooks", "OrderedDict", "grad_fn", "_register_hook_dict", "torch.utils.hooks", "RemovableHandle", "id"}
