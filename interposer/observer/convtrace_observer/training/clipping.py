"""Records gradients before the program clips them, and the norm that the clipping function returns."""
import functools
import sys
import types

from ..base import engine, frames, replaced

_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
_TOTAL_NORM = 1  # position in what clip_grads_with_norm_ takes behind the parameters


class Clipping:
    """Wraps the clipping functions of torch.nn.utils, in the module that defines them and in those that export
    them. Makes the slots `grad_unclipped:weight` and `grad_norm` (the norm that the function returns)."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._tensor = torch.Tensor
        self._namespaces = [sys.modules[name] for name in ("torch.nn.utils", "torch.nn.utils.clip_grad")
                            if name in sys.modules]
        self._replaced = replaced.Replaced()

    def install(self):
        wrappers = {}
        for namespace in self._namespaces:
            for name in _FUNCTIONS:
                original = getattr(namespace, name, None)
                if original is not None:
                    self._replaced.set(namespace, name, wrappers.setdefault(original, self._wrap(original)))

    def remove(self):
        self._replaced.put_back()

    def _wrap(self, original):
        observer = self._observer

        @frames.unseen
        @functools.wraps(original)
        def clip(parameters, *args, **kwargs):
            if observer.is_compiling():
                return original(parameters, *args, **kwargs)
            try:
                if observer.is_tracing() or not observer.capture:
                    return original(parameters, *args, **kwargs)
                known, parameters = self._look(parameters)
                self._before(known)
                norm = original(parameters, *args, **kwargs)
            except BaseException as error:
                frames.hide(error)
                raise
            given = args[_TOTAL_NORM] if len(args) > _TOTAL_NORM else kwargs.get("total_norm")
            self._after(norm if norm is not None else given)
            return norm

        return clip

    def _look(self, parameters):
        """@return the parameters to be clipped, and the argument to pass on: `parameters` itself, or a new generator in
        place of one that was read here."""
        if isinstance(parameters, self._tensor):
            return [parameters], parameters
        if not hasattr(parameters, "__next__"):
            return parameters, parameters
        known = list(parameters)
        again = iter(known)
        if isinstance(parameters, types.GeneratorType):  # torch asks
            again = (one for one in known)
        return known, again

    def _before(self, parameters):
        observer = self._observer
        try:
            thread = observer.threads.state
            if observer.begin(thread):
                observer.optimizers.record(thread, engine.BACKWARD, list(self._gradients(parameters)))
        except Exception as error:
            observer.failed("gradients before clipping", error)

    def _gradients(self, parameters):
        names, intern = self._observer.names, self._observer.port.intern
        for index, parameter in enumerate(parameters):
            with self._observer.read.unobserved():
                gradient = parameter.grad if parameter.is_leaf else None  # torch warns of others' .grad
            if gradient is not None:
                owner = names.owner(parameter, 0, index)
                yield gradient, owner.place, intern("grad_unclipped:" + owner.name)

    def _after(self, norm):
        observer = self._observer
        try:
            if isinstance(norm, self._tensor) and observer.capture:
                observer.optimizers.record(observer.threads.state, engine.BACKWARD, (
                    (norm, observer.names.place(""), observer.port.intern("grad_norm")),))
        except Exception as error:
            observer.failed("norm of gradients", error)
