"""Records which hooks the program has registered on modules, and finds those that it has registered twice on one module or
parameter, as when a setup runs twice: they do their work twice. Two hooks are equal if they are one object, or have the same
code, closure and defaults. Both are looked at when a root is called in training, in its steps 1, 2, 4, 8 and so on.
"""
import functools
import types

from ..base import contents, held

_OF_MODULES = {"_forward_pre_hooks": "forward pre-hook", "_forward_hooks": "forward hook",
               "_backward_pre_hooks": "backward pre-hook", "_backward_hooks": "backward hook"}
_OF_PARAMETERS = {"_backward_hooks": "hook", "_post_accumulate_grad_hooks": "post-accumulate hook"}
_MOST = 64  # compared hooks of one place
_MOST_NAMED = 4  # hooks of one kind of a module
_DEEPEST = 4  # nested closures; a function may close over itself
_SCALARS = frozenset((bool, int, float, str, type(None)))


class Hooks:
    def __init__(self, observer):
        self._observer = observer
        self._told = set()  # (id of a scope, (name, text))

    def look(self, thread, root):
        """Records the hooks in the tree of a root that is about to be called in training."""
        try:
            with self._observer.read.unobserved():
                for entry, module in self._observer.names.modules(root):
                    facts = [("hook.twice", text) for text in self._twice(module)]
                    named = ["%s %s" % (word, self._named(hook)) for kind, word in _OF_MODULES.items()
                             for _, hook in held(module, kind)[:_MOST_NAMED]]
                    for fact in facts + ([("hooks", ", ".join(named))] if named else []):
                        if (entry.place.id, fact) not in self._told:
                            self._told.add((entry.place.id, fact))
                            thread.batch.event_fact(entry.place.id, *fact)
        except Exception as error:
            self._observer.failed("hooks", error)

    def _twice(self, module):
        for kind, word in _OF_MODULES.items():
            yield from self._of_place(word, held(module, kind))
        for name, parameter in held(module, "_parameters"):
            if parameter is not None:
                for kind, word in _OF_PARAMETERS.items():
                    hooks = getattr(self._observer.read.bare(parameter), kind, None)
                    yield from self._of_place("%s of %s" % (word, name), contents.items(hooks))

    def _of_place(self, word, hooks):
        """`hooks`: [(number, hook)]."""
        if not 2 <= len(hooks) <= _MOST:
            return
        for index, (_, one) in enumerate(hooks):
            if any(_same(one, other) for _, other in hooks[:index]):
                yield "%s, %s" % (word, self._named(one))
                return

    def _named(self, hook):
        while type(hook) in (types.MethodType, functools.partial):
            hook = hook.__func__ if type(hook) is types.MethodType else hook.func
        if type(hook) is not types.FunctionType:
            return contents.path_of(type(hook))
        code = hook.__code__
        return "%s (%s)" % (code.co_name, self._observer.module_facts.code.place(code.co_filename, code.co_firstlineno))


def _same(one, other, depth=0):
    """@return whether two hooks are equal, by object or by code and surroundings."""
    kind = type(one)
    if one is other or kind is not type(other):
        return one is other or contents.is_one_of(kind, _SCALARS) and one == other
    if kind is types.MethodType:
        return one.__self__ is other.__self__ and _same(one.__func__, other.__func__, depth)
    if kind is functools.partial:
        return _same(one.func, other.func, depth) and _all_same(
            (*one.args, *_flat(one.keywords)), (*other.args, *_flat(other.keywords)), depth)
    return (kind is types.FunctionType and one.__code__ is other.__code__ and depth < _DEEPEST
            and _all_same(_around(one), _around(other), depth + 1))


def _all_same(some, others, depth):
    return len(some) == len(others) and all(_same(one, other, depth) for one, other in zip(some, others))


def _flat(named):
    return [part for item in contents.items(named) for part in item]


def _around(function):
    """@return the contents of a function's closure and its defaults; an empty cell stands for itself."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            cells.append(cell)
    return [*cells, *(function.__defaults__ or ()), *_flat(function.__kwdefaults__)]
