"""Reads from the source of a kernel which inputs each output depends on. Nothing here needs torch.

The source is that of a C++ or Triton kernel in Inductor's style: one assignment per statement, values in variables, and
operands in parameters. For source in another style an output has no known inputs.
"""
import re

_COMMENTS = re.compile(r"//[^\n]*|#[^\n]*")
_STATEMENTS = re.compile(r"[;{}\n]+")
_ALIAS = re.compile(r"auto (\w+) = (\w+)$")
_STORE = re.compile(r"(.*)\.store\(\s*(\w+)(.*)|(?:tl\.store|tl\.atomic_add|atomic_add\w*)\(\s*&?(\w+)(.*)", re.S)
_TRANSPOSITION = re.compile(r"(?:at::vec::)?transpose_mxn<.*\)$", re.S)  # of a block: (from, its rows, to, its rows)
_ASSIGNMENT = re.compile(r"(.*?[\w\])])\s*[-+*/]?=(?!=)(.*)", re.S)
_LAMBDA = re.compile(r"(\w+) = \[[&=]\](?:\(\))?$")
_ARRAY = re.compile(r"(?:alignas\(.*\) )?[\w:]+ (\w+)\[[\w*]+\]$")  # declared
_WORD = re.compile(r"[A-Za-z_]\w*")


def made_of(text, inputs, outputs):
    """@param inputs, outputs  names of parameters
    @return {output: names of the inputs that its elements depend on, in their order}
    """
    sources = {name: {name} for name in inputs}
    same, open_lambdas, written = {}, [], {name: set() for name in outputs}

    def of(expression):
        found = set()
        for word in _WORD.findall(expression):
            word = same.get(word, word)
            found.update(sources.get(word, ()), written.get(word, ()))
        return found

    for statement in _STATEMENTS.split(_COMMENTS.sub("", text)):
        statement = statement.strip()
        alias, opened, store = _ALIAS.match(statement), _LAMBDA.search(statement), _STORE.match(statement)
        if alias and (alias[2] in sources or alias[2] in written) and alias[2].count("ptr"):
            same[alias[1]] = alias[2]
        elif opened:
            sources[opened[1]] = set()
            open_lambdas.append(opened[1])
        elif statement.startswith("return ") and open_lambdas:
            sources[open_lambdas.pop()] |= of(statement)
        elif store or _TRANSPOSITION.match(statement):
            value, target = _stored(statement, store)
            target = same.get(target, target)
            if target in written:
                written[target] |= of(value)
            else:
                sources[target] = sources.get(target, set()) | of(value)
        elif _ARRAY.match(statement):
            sources[_ARRAY.match(statement)[1]] = set()
        else:
            _assign(statement, sources, written, same, of)
    return {name: [one for one in inputs if one in written[name]] for name in outputs}


def _stored(statement, store):
    """@return (the stored expression, the name of its target)"""
    if store:
        return (store[1] + store[3], store[2]) if store[2] else (store[5], store[4])
    value, _, target, _ = _arguments(statement)
    return value, _WORD.search(target)[0]


def _arguments(call):
    """@return the arguments of a call, whose name may also contain brackets."""
    found, depth = [""], 0
    for letter in reversed(call.rstrip()[:-1]):
        depth += {")": 1, "(": -1}.get(letter, 0)
        if depth < 0:
            break
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] = letter + found[-1]
    return found[::-1]


def _assign(statement, sources, written, same, of):
    found = _ASSIGNMENT.match(statement)
    left, right = found.groups() if found else ("", "")
    names = _WORD.findall(left.split("[")[0])
    if not names or statement.startswith(("for", "if", "while")):
        return
    target = same.get(names[-1], names[-1])
    made = of(right)
    if target in written:
        written[target] |= made
    elif "[" in left or target in _WORD.findall(right):
        sources[target] = sources.get(target, set()) | made
    else:
        sources[target] = made
