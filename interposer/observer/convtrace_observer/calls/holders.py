"""Finds the object that holds a module called while no other is running.

A program may call parts of a model without the model itself: Lightning's `training_step` calls `self.encoder(x)`, a
trainer of a GAN `self.G(z)`. The model is then found through an object whose method is running: a module whose tree contains
the called one (the outermost of several, since its `named_modules()` has all of them), or another object with such a module
in an attribute. If that object has several models, each is named by its attribute. Copies of one model (an average, a target
network) count once, so that a trainer of one model names its layers as if the model had been called in a function.

Objects are read as in base/contents.py, and none is kept. Only the first call of a root without a name starts a search. A
class whose modules were not found _MOST_FRUITLESS times is not searched for again, and all searches end after
_MOST_LOOKED_AT objects, about half a second: a program may make a model for each step in an object that holds thousands.
"""
from ..base import callers, contents
from . import naming

_MOST_FRUITLESS = 16
_MOST_LOOKED_AT = 1 << 17  # attributes and modules
_CONTAINERS = ("ModuleList", "ModuleDict")  # of models that are called separately


class Holders:
    def __init__(self, torch):
        self._kind = torch.nn.Module
        self._containers = tuple(getattr(torch.nn, name) for name in _CONTAINERS)
        self._fruitless = {}  # class -> how many of its modules were in no object
        self._left = _MOST_LOOKED_AT

    def of(self, module):
        """@return the root that a called module is part of (possibly itself), and the attribute that names it, or None."""
        kind = contents.name_of(type(module))
        if self._fruitless.get(kind, 0) >= _MOST_FRUITLESS or self._left <= 0:
            return module, None
        root, attribute, found = module, None, None
        selves = callers.selves()
        for one in selves:
            if issubclass(type(one), self._kind) and id(root) in (self._tree(one) or ()):
                root = one
        for one in selves:
            if not issubclass(type(one), self._kind):
                found = self._in_attributes(one, root)
                if found is not None:
                    root, attribute = found
                    break
        if root is module and found is None:
            self._fruitless[kind] = self._fruitless.get(kind, 0) + 1
        return root, attribute

    def _in_attributes(self, holder, module):
        """@return (root, attribute or None) of a module that an object holds; None if it does not."""
        models, held = {}, contents.items(contents.attributes(holder))
        self._left -= len(held)
        for name, one in held:
            if type(name) is str and issubclass(type(one), self._kind):
                tree = self._tree(one)
                if tree is not None:
                    models[name] = one, tree
        having = [name for name, (_, tree) in models.items() if id(module) in tree]
        if not having:
            return None
        name = max(having, key=lambda name: (not self._is_container(models[name][0]), len(models[name][1])))
        root, tree = models[name]
        if not _learns(tree) or self._is_container(root) or len(self._unlike(models)) < 2:
            return root, None
        return root, name

    def _is_container(self, module):
        return issubclass(type(module), self._containers)

    def _unlike(self, models):
        """@return the distinct structures (classes and sizes) of the models that have weights, and are neither part of another
        model nor containers."""
        kinds, seen = set(), set()
        for model, tree in sorted(models.values(), key=lambda found: -len(found[1])):
            if not self._is_container(model) and _learns(tree) and seen.isdisjoint(tree):
                seen.update(tree)
                kinds.add(tuple(map(_kind_of, self._tree(naming.unwrapped(model)).values())))
        return kinds

    def _tree(self, module):
        """@return {id: module} of a tree, parents first; None if one of its modules is not set up, or keeps its children in its
        own way."""
        tree, pending = {}, [module]
        while pending:
            one = pending.pop()
            if id(one) in tree:
                continue
            held = contents.attributes(one)
            children = dict.get(held, "_modules")
            if not (issubclass(type(children), dict) and issubclass(type(dict.get(held, "_parameters")), dict)
                    and dict.__contains__(held, "_buffers")):
                return None
            tree[id(one)] = one
            self._left -= 1
            pending.extend(child for _, child in reversed(contents.items(children)) if issubclass(type(child), self._kind))
        return tree


def _learns(tree):
    return any(parameter is not None for module in tree.values()
               for _, parameter in contents.items(contents.attribute(module, "_parameters")))


def _kind_of(module):
    """@return the class and the integer attributes of a module, which its copies share."""
    sizes = (item for item in contents.items(contents.attributes(module)) if type(item[1]) is int)
    return id(type(module)), tuple(item for item in sizes if type(item[0]) is str)
