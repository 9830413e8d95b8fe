"""Second versions of the functions of a generated file: the same statements, with a call of the observer before and
after each kernel. A function gets the code of its twin in steps whose values are wanted, and its own code again in
others; one that reports its beginning has the code of its twin in all steps. The function object, its globals and the
compiled kernels stay the same.
"""
import ast
import weakref

BEFORE, AFTER, BEGINS = "_convtrace_before", "_convtrace_after", "_convtrace_begins"
ENTER, LEAVE, _PLACE = "_convtrace_enter", "_convtrace_leave", "_convtrace_place"


class Twin:
    """Both versions of one function."""

    __slots__ = ("_function", "_plain", "_observed", "_always")

    def __init__(self, function, node, observed, run=None):
        """@param node  the function as ast, which becomes the observed one
        @param observed  id() of a call's statement -> (its number for the observer, its inputs, its outputs), these as
            (name, expression); or the number alone of a call that enters a module and leaves it
        @param run  number for the observer when the function begins, also in steps without values: the observed version
            then runs in all steps. None: the beginning is not reported
        """
        self._function, self._plain, self._always = weakref.ref(function), function.__code__, run is not None
        _insert(node, observed)
        if self._always:
            told = ast.Expr(ast.Call(ast.Name(BEGINS, ast.Load()), [ast.Constant(run)], []))
            node.body.insert(0, ast.copy_location(told, node.body[0]))
        module = ast.fix_missing_locations(ast.Module([node], []))
        code = compile(module, self._plain.co_filename, "exec", dont_inherit=True)
        self._observed = next(one for one in code.co_consts if hasattr(one, "co_code"))

    def switch(self, observed):
        """Selects the version that runs. @return whether the function still lives."""
        return self._run(self._observed if observed or self._always else self._plain)

    def put_back(self):
        self._run(self._plain)

    def _run(self, code):
        function = self._function()
        if function is not None:
            function.__code__ = code
        return function is not None


def _insert(node, wanted):
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if not block:
            continue
        result = []
        for statement in block:
            if type(wanted.get(id(statement))) is int:
                result += _entering(wanted[id(statement)], statement)
            elif id(statement) in wanted:
                number, inputs, outputs = wanted[id(statement)]
                if inputs:
                    result.append(_told(BEFORE, number, inputs, statement))
                result += [statement, _told(AFTER, number, outputs, statement)]
            else:
                _insert(statement, wanted)
                result.append(statement)
        block[:] = result


def _told(name, number, operands, statement):
    values = ast.Tuple([expression for _, expression in operands], ast.Load())
    told = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), values], []))
    return ast.copy_location(told, statement)


def _entering(number, statement):
    """@return a statement as it runs inside a module, which is left also if it raises."""
    enter = ast.Call(ast.Name(ENTER, ast.Load()), [ast.Constant(number)], [])
    leave = ast.Call(ast.Name(LEAVE, ast.Load()), [ast.Name(_PLACE, ast.Load())], [])
    around = [ast.Assign([ast.Name(_PLACE, ast.Store())], enter), ast.Try([statement], [], [], [ast.Expr(leave)])]
    return [ast.copy_location(one, statement) for one in around]
