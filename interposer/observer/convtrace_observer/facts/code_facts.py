"""Facts about the code that runs: hashes of the script, of the files that it imports from its own folders and of the classes
of its modules, and the versions of the installed packages that were imported; with CONVTRACE_SOURCE=1 also their texts (sources.py).

A class's hash covers the bytecode of its functions; comments, docstrings, line numbers and the file's path do not enter.
It differs between versions of Python."""
import functools
import hashlib
import inspect
import operator
import os
import re
import sys
import types

from ..base import FOLDER, contents, signals
from . import sources

_NOT_THE_PROGRAMS = os.path.join(FOLDER, ""), os.path.join(os.path.dirname(os.__file__), "")
_DISTRIBUTION = re.compile(r"(.+?)-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist-info|egg-info)$")
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_GENERATED = "torch._inductor.runtime.compile_tasks."  # modules that Inductor writes into its cache
_MAX_FILES, _MAX_FILE_BYTES = 500, 1 << 22
_MAX_LAYERS = 32
_HAS_DOCSTRING = 0x4000000  # inspect.CO_HAS_DOCSTRING
# Objects that contain functions, and the attributes with these.
_HOLDERS = (
    ((staticmethod, classmethod, types.MethodType), ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    ((functools.cached_property, functools.partialmethod, functools.partial), ("func",)),
    (type(functools.lru_cache(len)), ("__wrapped__",)))
_TEXTS = bool, int, float, complex, str, bytes, type(None), type(Ellipsis)  # whose texts are the same in every run
_script = None


def forward_of(kind):
    """@return the code of a class's forward as it was written, under its decorators, or None."""
    layers = [layer.__code__ for layer in _layers(contents.found_in(kind, "forward"), [])]
    return next((code for code in layers if code.co_name == "forward"), layers[0] if layers else None)


class Code:
    """Records places and hashes of code."""

    def __init__(self, torch):
        self._torch = torch
        self._short = {}
        self._classes = {}  # id -> its name: a reference would keep it

    def place(self, path, line):
        return "%s:%d" % (self.short(path), line)

    def short(self, path):
        """@return a path relative to the script's folder, or to an entry of Python's path."""
        name = self._short.get(path)
        if name is None:
            name = self._short[path] = _short(path, _import_folders())
        return name

    def of_class(self, kind):
        """Yields (name, hash) of a class and its bases, except torch's, and their sources if these are recorded."""
        for one in contents.mro_of(kind):
            name, module = contents.path_of(one), contents.module_of(one)
            if self._classes.get(id(one)) == name or one is object or module.partition(".")[0] == "torch":
                continue
            self._classes[id(one)] = name
            try:
                found = _class_hash(one)
            except Exception as error:  # constants nested too deep
                signals.let_pass(error)
                continue
            path = _file_of(sys.modules.get(module))
            name = (self.short(path) if path else module) + name[len(module):]
            yield "code." + name, found
            text = sources.of_class(one)
            if text:
                yield "source." + name, text


def _import_folders():
    """@return the script's folder, the working directory and the entries of Python's path, each with a slash at its end."""
    return [os.path.join(_absolute(folder), "") for folder in (*own_folders(), *sys.path)]


def _short(path, folders):
    whole = os.path.normpath(path)
    inside = max((folder for folder in folders if whole.startswith(folder)), key=len, default="")
    return whole[len(inside):]


def files():
    """Yields (name, hash) of the script and of the files that it imports from its own folders, and their sources if these are recorded."""
    folders = own_folders()
    named_from = _import_folders()
    installed = (*_NOT_THE_PROGRAMS, *_folders_of_packages(folders))
    count = 0
    for name, module in list(sys.modules.items()):
        path = _file_of(module)
        if name.startswith(_GENERATED):
            continue
        if path is None or not path.endswith(".py") or any(one in path for one in _INSTALLED):
            continue
        path = os.path.normpath(path)
        if not path.startswith(tuple(folders)) or path.startswith(installed) or not os.path.isfile(path):
            continue
        name = _short(path, named_from)
        with open(path, "rb") as file:
            yield "code." + name, _hash(file.read(_MAX_FILE_BYTES))
        text = sources.of_file(path)
        if text:
            yield "source." + name, text
        count += 1
        if count == _MAX_FILES:
            return


def packages():
    """Yields (name, version) of the installed packages that were imported, from the names of their folders or from
    their modules."""
    imported = {}
    for name in list(sys.modules):
        if "." not in name:
            imported[_plain(name)] = sys.modules[name]
    for folder in dict.fromkeys(sys.path):
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            found = _DISTRIBUTION.match(entry)
            if found and imported.pop(_plain(found[1]), None) is not None:
                yield "package." + found[1], found[2]
    for module in imported.values():
        path, version, name = _file_of(module), *(contents.attribute(module, name) for name in ("__version__", "__name__"))
        if path is not None and type(version) is type(name) is str and any(one in path for one in _INSTALLED):
            yield "package." + name, version


def _file_of(module):
    """@return the file of a module's code, or None. A module that loads itself at its first use is not loaded by this."""
    path = contents.attribute(module, "__file__")
    return path if type(path) is str else None


def _folders_of_packages(own):
    """Yields the entries of Python's path that pip installed into, as `pip install --target` below the program."""
    for folder in dict.fromkeys(sys.path):
        folder = os.path.join(_absolute(folder), "")
        try:
            if folder not in own and any(entry.endswith(".dist-info") for entry in os.listdir(folder)):
                yield folder
        except OSError:
            continue


def _hash(data):
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _absolute(path):
    """@return the path itself where the working directory has been removed."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def own_folders():
    """@return the script's folder and the working directory."""
    global _script
    # Python removes the name when the script has ended, and facts are recorded after that, too.
    _script = _file_of(sys.modules.get("__main__")) or _script
    found = [os.path.dirname(_absolute(_script))] if _script else []
    try:
        found.append(os.getcwd())
    except OSError:
        pass
    return [os.path.join(folder, "") for folder in found]


def _plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _class_hash(kind):
    bases = (contents.path_of(one)[1 + len(contents.module_of(one)):] for one in contents.bases_of(kind))
    hasher = hashlib.blake2b(",".join(bases).encode(), digest_size=8)
    for name, member in sorted(contents.members_of(kind), key=operator.itemgetter(0)):
        layers = list(_layers(member, []))
        own = [one for one in layers if dict.get(one.__globals__, "__name__") == contents.module_of(kind)] or layers[:1]
        for function in own:
            hasher.update(name.encode())
            _add_function(hasher, function)
        if layers[:1] != own[:1]:
            hasher.update(layers[0].__code__.co_name.encode())  # another module's decorator: by its name
        if name[:2] != "__":
            hasher.update(("%s=%s" % (name, _text(member))).encode())
    return hasher.hexdigest()


def _layers(member, seen):
    """Yields a function and the functions in its closure, such as the one that a decorator wraps. Other objects there are
    data, such as a folder's name or a time."""
    for kind, names in _HOLDERS:
        if issubclass(type(member), kind):
            for name in names:
                yield from _layers(contents.attribute(member, name), seen)
    if type(member) is not types.FunctionType or member in seen or len(seen) == _MAX_LAYERS:
        return
    seen.append(member)
    yield member
    for cell in member.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # nothing was put in yet
            continue
        yield from _layers(inner, seen)


def _add_function(hasher, function):
    _add_code(hasher, function.__code__)
    named = (item for item in contents.items(function.__kwdefaults__) if type(item[0]) is str)
    given = *contents.elements(function.__defaults__), *sorted(named, key=operator.itemgetter(0))
    hasher.update(_text(given).encode())


def _add_code(hasher, code):
    hasher.update(code.co_code)
    hasher.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts[_has_docstring(code):]:
        if isinstance(constant, types.CodeType):
            _add_code(hasher, constant)
        else:
            hasher.update(_text(constant).encode())


def _has_docstring(code):
    """@return whether the first constant is the docstring or stands in its place: before Python 3.13 a function without
    a docstring has None there."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & _HAS_DOCSTRING)
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_name[0] != "<"


def _text(value):
    """@return a constant's text if it is the same in every run, else ""."""
    kind = type(value)
    plain = next((one for one in _TEXTS if issubclass(kind, one)), None)
    if plain is not None:
        return plain.__repr__(value)
    if issubclass(kind, tuple):
        return "(%s)" % ",".join(map(_text, tuple.__iter__(value)))
    if issubclass(kind, frozenset):
        return "{%s}" % ",".join(sorted(map(_text, frozenset.__iter__(value))))
    return ""
