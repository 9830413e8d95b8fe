"""The work of a task of the map: starts an installed program, and writes its output as Parquet."""
import os
import signal
import subprocess
import sys

import pyarrow.parquet

from .. import tree
from . import places

UNREADABLE = 2101  # as in tools/common/complaints.h
_DAMAGED = 3  # exit code


class Failed(RuntimeError):
    """A program has failed. The message has its reason."""


def run_program(name, *arguments):
    """Runs a program. @return its stdout, as bytes. @raise Failed  if it fails; an unclosed or damaged trace is no failure"""
    done = subprocess.run([tree.program(name), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode in (0, _DAMAGED):
        return done.stdout
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else "exit code %d" % done.returncode
    raise Failed("%s: %s%s" % (name, how, ": " + said[-1] if said else ""))


def judge(folder, name, *arguments):
    """Runs a program in a folder, whose output goes to this process's stdout and stderr. @return its exit code"""
    return subprocess.call([tree.program(name), *arguments], cwd=folder)


def write_table(table, folder, name):
    """Writes a Parquet file atomically: it exists complete or not at all."""
    system, inside = places.opened(folder)
    system.create_dir(inside)
    unfinished = os.path.join(inside, "_%s.unfinished" % name)
    with system.open_output_stream(unfinished) as file:
        pyarrow.parquet.write_table(table, file, compression="zstd")
    system.move(unfinished, os.path.join(inside, name + ".parquet"))


def _escaped(text):
    """@return a text in one line, with unprintable characters escaped as by tools::escape_text."""
    return "".join(c if c.isprintable() else c.encode("utf-8", "surrogateescape").decode("latin-1").encode("unicode_escape").decode()
                   for c in text)


def report(path, error):
    """Prints the message of a failed task to stderr, in the form of that for an unreadable trace. @return the message"""
    line = "CT-%d %s: the task that reads it has failed: %s" % (UNREADABLE, _escaped(path), _escaped(" ".join(str(error).split())[:500]))
    print("convtrace: " + line, file=sys.stderr)
    return line
