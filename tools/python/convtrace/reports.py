"""Reports of the commands diff, check and origin as objects: `convtrace.diff(base, cand).root.scope`.

A report is the JSON of its command (docs/diff-report.schema.json, check-report, origin-report): dictionaries whose keys are
attributes, too. A notebook shows it as the command's page; its text is the command's output.
"""
import html
import json
import os
import subprocess
import sys
import tempfile

from . import tree

_FAILED = 2  # exit status of a usage error, or an input that cannot be read


class Failed(RuntimeError):
    """The command has failed. The message is its output."""


class Record(dict):
    """A JSON object, whose keys come before the methods of a dictionary: `report.compared.values` is a number."""

    def __getattribute__(self, name):
        return dict.__getitem__(self, name) if dict.__contains__(self, name) else super().__getattribute__(name)


class Report(Record):
    """`text`: what the command prints. `page`: its HTML."""

    def __init__(self, values, text, page):
        super().__init__(values)
        self.__dict__.update(text=text, page=page)

    def __str__(self):
        return self.text

    def _repr_html_(self):
        frame = '<iframe sandbox="allow-scripts" srcdoc="%s" style="width: 100%%; height: 40em"></iframe>'
        return frame % html.escape(self.page)


def diff(base, cand, *options):
    """@return the report of `convtrace-diff BASE CAND`. `options`: those of the command. Raises Failed."""
    return report_of("convtrace-diff", [base, cand, *options])


def check(*traces):
    """@return the report of `convtrace check`. `traces`: paths, and options of the command. Raises Failed."""
    return report_of("convtrace", ["check", *traces])


def origin(*traces):
    """@return the report of `convtrace origin`. `traces`: a folder or paths, and options of the command. Raises Failed."""
    return report_of("convtrace", ["origin", *traces])


def report_of(program, arguments):
    """@return the report of a program of the tree that takes `--json FILE` and `--html FILE`. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder:
        told, page = os.path.join(folder, "report.json"), os.path.join(folder, "report.html")
        text = run(program, *map(os.fspath, arguments), "--json", told, "--html", page)
        with open(told, encoding="utf-8") as file:
            values = json.load(file, object_hook=Record)
        with open(page, encoding="utf-8") as file:
            return Report(values, text, file.read())


def run(program, *arguments, failures=(_FAILED,)):
    """@return the stdout of a program of the tree. Its stderr is passed on, or becomes the text of Failed, which is raised if the
    program ends by a signal or with an exit status in `failures`."""
    done = subprocess.run([tree.program(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    if done.returncode < 0 or done.returncode in failures:
        raise Failed(done.stderr.rstrip() or "%s ended with status %d" % (program, done.returncode))
    sys.stderr.write(done.stderr)
    return done.stdout
