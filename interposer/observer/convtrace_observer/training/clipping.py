"""Records gradients before the program clips them, and the norm that the clipping function returns.

The argument of a clipping function is read only if that runs no code of the program: a tensor, a list, a tuple, and the
unstarted generator of Module.parameters(). Any other iterable may give its parameters only once, change their order or have
side effects: it is not touched, and the list that clip_grad_norm_ makes of it is read instead."""
import inspect
import math
import sys
import threading
import types

from ..base import contents, engine, held, replaced

_CLIP = "_clip_grads_with_norm_"  # which clip_grad_norm_ of torch 2.6 and later calls with a list
_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
_TOTAL_NORM = 2  # position among the arguments of clip_grads_with_norm_
# Methods that Module.parameters() calls on the module, and on each module of its tree.
_ASKED, _ASKED_EACH = ("named_parameters", "_named_members"), "named_modules"


class Clipping:
    """Wraps the clipping functions of torch.nn.utils, in the module that defines them and in those that export
    them. Makes the slots `grad_unclipped:weight` and `grad_norm` (the norm that the function returns)."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._tensor = torch.Tensor
        self._module = torch.nn.Module
        self._namespaces = [sys.modules[name] for name in ("torch.nn.utils", "torch.nn.utils.clip_grad")
                            if name in sys.modules]
        self._parameters = getattr(torch.nn.Module.parameters, "__code__", None)
        self._unknown = set()  # threads in a clipping function whose parameters are not known yet
        self._replaced = replaced.Replaced()

    def install(self):
        wrappers = {}
        for namespace in self._namespaces:
            for name in _FUNCTIONS:
                original = getattr(namespace, name, None)
                if original is not None:
                    self._replaced.set(namespace, name, wrappers.setdefault(original, self._wrap(original)))
        if self._namespaces:
            self._replaced.wrap(self._namespaces[-1], _CLIP, self._wrap_inner)

    def remove(self):
        self._replaced.put_back()

    def _wrap(self, original):
        return replaced.framed(self._observer, original, self._begins, self._ended)

    def _wrap_inner(self, original):
        return replaced.framed(self._observer, original, self._has_list)

    def _begins(self, args, kwargs):
        observer = self._observer
        if observer.is_compiling() or observer.is_tracing() or not observer.capture:
            return None
        kwargs = kwargs or {}
        limit = args[1] if len(args) > 1 else kwargs.get("max_norm")
        if type(limit) is not float or limit != math.inf:  # with an infinite limit the program wants the norm alone
            self._look(args[0] if args else kwargs.get("parameters"))
        return (args[_TOTAL_NORM] if len(args) > _TOTAL_NORM else kwargs.get("total_norm"),)

    def _ended(self, state, norm, raised):
        self._unknown.discard(threading.get_ident())
        if not raised:
            self._after(norm if norm is not None else state[0])

    def _has_list(self, args, kwargs):
        if args and threading.get_ident() in self._unknown and not self._observer.is_compiling():
            self._look(args[0])

    def _look(self, parameters):
        """Records the gradients of the parameters that a clipping function was given."""
        observer = self._observer
        self._unknown.discard(threading.get_ident())
        try:
            known = self._known(parameters)
            if known is None:
                self._unknown.add(threading.get_ident())
                return
            thread = observer.threads.state
            if observer.begin(thread):
                observer.optimizers.record(thread, engine.BACKWARD, list(self._gradients(known)))
        except Exception as error:
            observer.failed("gradients before clipping", error)

    def _known(self, parameters):
        """@return the parameters to be clipped; None if only the program's own code can enumerate them."""
        kind = type(parameters)
        if kind is list or kind is tuple:
            return [one for one in parameters if issubclass(type(one), self._tensor)]
        if issubclass(kind, self._tensor):
            return [parameters]
        if kind is types.GeneratorType and parameters.gi_code is self._parameters and (
                inspect.getgeneratorstate(parameters) == inspect.GEN_CREATED):
            given = parameters.gi_frame.f_locals
            if type(given["recurse"]) is bool:
                return self._parameters_of(given["self"], given["recurse"])
        return None

    def _parameters_of(self, module, recurse):
        """@return the parameters that Module.parameters() gives; None if a method that it calls is the program's own."""
        found, pending, seen = {}, [module], set()
        if not all(self._is_torchs(module, name) for name in _ASKED):
            return None
        while pending:
            one = pending.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if not self._is_torchs(one, _ASKED_EACH):
                return None
            found.update((id(parameter), parameter) for _, parameter in held(one, "_parameters") if parameter is not None)
            if recurse:
                pending.extend(child for _, child in reversed(held(one, "_modules")) if child is not None)
        return list(found.values())

    def _is_torchs(self, module, name):
        """@return whether the module inherits this method from torch's Module."""
        found = contents.found_in(type(module), name)
        return found is contents.found_in(self._module, name) and not dict.__contains__(contents.attributes(module), name)

    def _gradients(self, parameters):
        names, intern = self._observer.names, self._observer.port.intern
        for index, parameter in enumerate(parameters):
            with self._observer.read.unobserved():
                bare = self._observer.read.bare(parameter)
                gradient = bare.grad if bare.is_leaf else None  # torch warns of others' .grad
            if gradient is not None:
                owner = names.owner(parameter, 0, index)
                yield gradient, owner.place, intern("grad_unclipped:" + owner.name)

    def _after(self, norm):
        observer = self._observer
        try:
            if issubclass(type(norm), self._tensor) and observer.capture:
                observer.optimizers.record(observer.threads.state, engine.BACKWARD, (
                    (norm, observer.names.place(""), observer.port.intern("grad_norm")),))
        except Exception as error:
            observer.failed("norm of gradients", error)
