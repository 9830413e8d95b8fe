"""Keeps torch.compile from compiling the observer.

While a compiled function runs, Dynamo looks at every Python frame that starts, also at ours where
the program fell back to eager. Inside what it traces, our guard folds away; frames of ours that
really run must run as they are.
"""
import sys
import types

# Modules that run no code of the program. Dynamo also skips the functions that they call, such as those of Python's library.
_BY_ITSELF = (".facts.", ".base.contents", ".base.engine", ".base.spent", ".base.values", ".base.weight_marks")


def skip_frames(torch, package):
    """Marks all imported code below `package` (by the same call as torch._dynamo.skip, which would import all
    of Dynamo)."""
    skip, skip_all = _skip_function(torch), _skip_function(torch, recursively=True)
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(package + "."):
            mark = skip_all if name.startswith(tuple(package + one for one in _BY_ITSELF)) else skip
            for value in list(vars(module).values()):
                for code in _codes(value, name):
                    mark(code)


def skip(torch, code):
    function = _skip_function(torch)
    if function is not None:
        function(code)


def _skip_function(torch, recursively=False):
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.SKIP if recursively else action.DEFAULT)
        return lambda code: frames.set_code_exec_strategy(code, strategy)
    return getattr(frames, "skip_code", None)  # torch 2.1 to 2.5


def _codes(value, module_name):
    """Code objects of a function or class that `module_name` defines, of what they nest, and of what decorators wrap."""
    if getattr(value, "__module__", None) != module_name:
        return
    if isinstance(value, type):
        for member in vars(value).values():
            yield from _codes(getattr(member, "__func__", member), module_name)
    elif isinstance(value, types.FunctionType):
        yield from _codes(getattr(value, "__wrapped__", None), module_name)
        pending = [value.__code__]
        while pending:
            code = pending.pop()
            yield code
            pending.extend(c for c in code.co_consts if isinstance(c, types.CodeType))
