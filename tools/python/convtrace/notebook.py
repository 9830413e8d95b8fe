"""A magic for notebooks: `%load_ext convtrace` loads it, `%convtrace?` shows its usage."""
import shlex

from IPython.core.error import UsageError
from IPython.display import display

from . import reports

_PRINTED = {"info": ["info"], "norms": ["show", "--norms"], "nan": ["show", "--nan"]}


def convtrace(line):
    """%convtrace info|norms|nan TRACE    what `convtrace info` and `convtrace show --norms|--nan` print
    %convtrace diff BASE CAND          the report of convtrace-diff

    Options of the programs may follow. A failure of a program is an error of the cell, a verdict is none.
    """
    what, *arguments = shlex.split(line) or [""]
    try:
        if what == "diff":
            report = reports.report_of("convtrace-diff", arguments)
            display({"text/html": report._repr_html_(), "text/plain": str(report)}, raw=True)
        elif what in _PRINTED:
            print(reports.run("convtrace", *_PRINTED[what], *arguments, failures=(1, 2)), end="")
        else:
            raise UsageError(convtrace.__doc__)
    except reports.Failed as failed:
        raise UsageError(str(failed)) from None


def load(ipython):
    ipython.register_magic_function(convtrace, "line")
