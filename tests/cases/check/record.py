#!/usr/bin/env python3
"""Makes the traces whose names come on stdin, each in a fork, under the preload: record.py FOLDER.

A name is NAME+faulty, NAME+corrected or NAME+clean. A program of several ranks makes NAME+faulty.0.ctrace and so on.
A trace is one process's, and importing PyTorch costs more than a run: so a process that imported it, and computed
nothing, forks for each.
"""
import os
import pathlib
import sys
import tempfile
import time

import torch
import torch._dynamo  # noqa: F401 - the first optimizer would import it
import torch.utils.data.distributed  # noqa: F401

from table import ALL_CLEAN, CASES, paths


def run(program, flags):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    program(*flags)


def fork(program, flags, path):
    os.environ["CONVTRACE_OUTPUT"] = str(path)
    child = os.fork()
    if child == 0:
        run(program, flags)
        sys.exit(0)
    return child


def make(name, folder):
    case, _, form = name.partition("+")
    program, flags = (ALL_CLEAN[case], ()) if form == "clean" else (CASES[case].program, (form == "faulty",))
    finished = paths(name, folder)
    unfinished = [path.with_suffix(".part") for path in finished]
    with tempfile.TemporaryDirectory() as store:
        if len(finished) > 1:
            os.environ.update(WORLD_SIZE=str(len(finished)), CHECK_STORE=f"{store}/store")
        children = []
        for rank, path in enumerate(unfinished):
            if len(finished) > 1:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            children.append(fork(program, flags, path))
        failed = any([os.waitpid(child, 0)[1] for child in children])
    for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CHECK_STORE"):
        os.environ.pop(key, None)
    for path, part in zip(finished, unfinished):
        if not failed:
            part.rename(path)
    return not failed


def main(folder):
    failed = []
    for name in sys.stdin.read().split():
        begin = time.monotonic()
        if not make(name, folder):
            failed.append(name)
        print(f"{name}: {time.monotonic() - begin:.2f} s", file=sys.stderr)
    return f"failed: {' '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
