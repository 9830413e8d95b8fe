"""Separates autotuning from training and records its choices, for `triton.autotune` and Inductor.

While a configuration is tried out, the thread is in phase `tuning`: its launches belong to no step. The chosen configuration
is the fact `autotune.<kernel>`, whether it was measured in this process or comes from a cache. The template that
max-autotune chose is visible in the names of the region's calls (calls.py).
"""
import functools
import weakref

from ..base import engine, imports, replaced
from . import kernel_facts

_MAX_WAITING, _MAX_TEXT = 4096, 200


class Tuning:
    def __init__(self, observer):
        self._observer = observer
        self._replaced = replaced.Replaced()
        self._watches = ()
        self._waiting = []  # (weak reference to a tuner, function that reads its choices)
        self._facts = kernel_facts.KernelFacts(observer, "autotune.", sorted)

    def install(self):
        self._watches = (
            imports.watch("triton.runtime.autotuner", self._triton_arrived),
            imports.watch("torch._inductor.runtime.triton_heuristics", self._inductor_arrived),
            imports.watch("torch._inductor.select_algorithm", self._templates_arrived))

    def remove(self):
        for end in self._watches:
            end()
        self._replaced.put_back()
        self._waiting.clear()

    def _triton_arrived(self, module):
        tuner = getattr(module, "Autotuner", None)
        self._replaced.wrap(tuner, "_bench", self._tries)
        self._replaced.wrap(tuner, "prune_configs", functools.partial(self._is_noted, _chosen_by_triton))

    def _inductor_arrived(self, module):
        tuner = getattr(module, "CachingAutotuner", None)
        self._replaced.wrap(tuner, "bench", self._tries)
        self._replaced.wrap(tuner, "precompile", functools.partial(self._is_noted, _chosen_by_inductor))

    def _templates_arrived(self, module):
        cache = getattr(module, "AlgorithmSelectorCache", None)
        self._replaced.wrap(cache, "benchmark_choices", self._tries)

    def _tries(self, original):
        @functools.wraps(original)
        def tries(*args, **kwargs):
            slot = self._slot()
            before, slot[1] = slot[1], engine.TUNING
            try:
                return original(*args, **kwargs)
            finally:
                slot[1] = before

        return tries

    def _slot(self):
        """@return the words with this thread's position; unused words if the thread is not observed."""
        try:
            if self._observer.active:
                return self._observer.threads.state.slot
        except Exception as error:
            self._observer.failed("autotuning", error)
        return [0, 0]

    def _is_noted(self, read, original):
        @functools.wraps(original)
        def noted(tuner, *args, **kwargs):
            try:
                if self._observer.active and len(self._waiting) < _MAX_WAITING:
                    self._waiting.append((weakref.ref(tuner), read))
            except Exception as error:
                self._observer.failed("autotuning", error)
            return original(tuner, *args, **kwargs)

        return noted

    def look(self):
        """Records the configurations that were chosen since the last look."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        try:
            for reference, read in waiting:
                tuner = reference()
                found = read(tuner) if tuner is not None else ()
                if found is None:
                    self._waiting.append((reference, read))
                for kernel, choice in found or ():
                    self._facts.tell(kernel[:_MAX_TEXT], choice)
        except Exception as error:
            self._observer.failed("autotuning", error)


def _chosen_by_triton(tuner):
    """@return [(kernel, "(4096,) BLOCK: 128, num_warps: 4, ...")] of the keys that were tuned; None if none was yet."""
    function = tuner.base_fn
    return [("%s.%s" % (function.__module__, function.__name__), ("%s %s" % (key, config))[:_MAX_TEXT])
            for key, config in list(tuner.cache.items())] or None


def _chosen_by_inductor(tuner):
    """@return [(kernel, configuration)] of a kernel that Inductor made; None while several configurations are left."""
    if len(tuner.launchers) != 1:
        return None
    return [(tuner.fn.__name__, str(tuner.launchers[0].config)[:_MAX_TEXT])]
