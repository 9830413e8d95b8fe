"""Runs programs for a test, each in a fork of a process that has imported PyTorch and computed nothing: an import costs
more than most programs, and of a fork that was made before anything began there is a trace of its own.

A line of stdin is a request in JSON: argv of the program, cwd, environment, files of its stdout and stderr. The answer is
a line with its exit status as subprocess says it. Settings that the library reads when it is loaded are those of this
process (CONVTRACE_POISON, CONVTRACE_QUARANTINE, CONVTRACE_CPU_ALLOC).
"""
import json
import os
import sys
import types

import numpy  # noqa: F401
import torch
import torch._dynamo  # noqa: F401 - the first optimizer would import it


def become(argv, cwd, environment, stdout, stderr):
    for number, path in (0, os.devnull), (1, stdout), (2, stderr):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.argv[:] = argv
    sys.path[0] = os.path.dirname(argv[0])


def main():
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            requests.close()
            answers.close()
            become(**request)
            return request["argv"][0]
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return None


program = main()
if program:
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = program
    with open(program, encoding="utf-8") as source:
        code = compile(source.read(), program, "exec")
    exec(code, module.__dict__)
