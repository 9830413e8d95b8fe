"""What a task of the map does: starts an installed program, and writes what it says as Parquet."""
import os
import signal
import subprocess
import sys

import pyarrow.parquet

from .. import tree
from . import places

UNREADABLE = 2101  # as in tools/common/complaints.h


class Failed(RuntimeError):
    """A program that did not do its work, with its reason."""


def run_program(name, *arguments, given=b""):
    """What the program wrote to stdout, as bytes. @param given  to its stdin. @raise Failed  if it fails."""
    done = subprocess.run([tree.program(name), *arguments], input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else "exit code %d" % done.returncode
    raise Failed("%s: %s%s" % (name, how, ": " + said[-1] if said else ""))


def judge(name, *arguments, write):
    """The exit code of a program that reads what write(file) writes, and says what it says to this process's stdout and stderr."""
    program = subprocess.Popen([tree.program(name), *arguments], stdin=subprocess.PIPE)
    try:
        with program.stdin as file:
            write(file)
    except BrokenPipeError:  # it has said why
        pass
    return program.wait()


def write_table(table, folder, name):
    """A file of Parquet, which is there whole or not at all."""
    system, inside = places.opened(folder)
    system.create_dir(inside)
    unfinished = os.path.join(inside, "_%s.unfinished" % name)
    with system.open_output_stream(unfinished) as file:
        pyarrow.parquet.write_table(table, file, compression="zstd")
    system.move(unfinished, os.path.join(inside, name + ".parquet"))


def reason(error):
    """Why a task failed, in one line."""
    return "the task that reads it has failed: " + " ".join(str(error).split())[:500]


def problem(path, error):
    """The line of a trace whose task failed, as that of a trace that cannot be read."""
    return "CT-%d %s: %s" % (UNREADABLE, _escaped(path), _escaped(reason(error)))


def _escaped(text):
    """As tools::escape_text has it: one line, whatever a name or a trace holds."""
    return "".join(c if c.isprintable() else c.encode("utf-8", "surrogateescape").decode("latin-1").encode("unicode_escape").decode()
                   for c in text)


def report(path, error):
    """Tells the user. @return the line."""
    line = problem(path, error)
    print("convtrace: " + line, file=sys.stderr)
    return line
