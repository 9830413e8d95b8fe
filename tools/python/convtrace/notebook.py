"""For notebooks: `%load_ext convtrace`, and then what `%convtrace?` says."""
import html
import os
import shlex
import subprocess
import sys
import tempfile

from IPython.core.error import UsageError
from IPython.display import display

from . import tree

_PRINTED = {"info": ["info"], "norms": ["show", "--norms"], "nan": ["show", "--nan"]}


def convtrace(line):
    """%convtrace info|norms|nan TRACE    what `convtrace info` and `convtrace show --norms|--nan` print
    %convtrace diff BASE CAND          the report of convtrace-diff

    Options of the programs may follow. A failure of a program is an error of the cell, a verdict is none.
    """
    what, *arguments = shlex.split(line) or [""]
    if what == "diff":
        _diff(arguments)
    elif what in _PRINTED:
        print(_run("convtrace", *_PRINTED[what], *arguments, failures=(1, 2)), end="")
    else:
        raise UsageError(convtrace.__doc__)


def load(ipython):
    ipython.register_magic_function(convtrace, "line")


def _diff(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.html")
        text = _run("convtrace-diff", "--html", path, *arguments, failures=(2,))
        with open(path, encoding="utf-8") as file:
            page = html.escape(file.read())
    frame = '<iframe sandbox="allow-scripts" srcdoc="%s" style="width: 100%%; height: 40em"></iframe>' % page
    display({"text/html": frame, "text/plain": text}, raw=True)


def _run(program, *arguments, failures):
    """What the program prints. Raises UsageError with what it says where its exit status is one of `failures`."""
    done = subprocess.run([tree.program(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    if done.returncode < 0 or done.returncode in failures:
        raise UsageError(done.stderr.rstrip() or "%s ended with status %d" % (program, done.returncode))
    sys.stderr.write(done.stderr)
    return done.stdout
