"""A magic for notebooks: `%load_ext convtrace` loads it, `%convtrace?` shows its usage."""
import concurrent.futures
import shlex
import time

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
            _show(lambda: reports.report_of("convtrace-diff", arguments))
        elif what in _PRINTED:
            print(reports.run("convtrace", *_PRINTED[what], *arguments, failures=(1, 2)), end="")
        else:
            raise UsageError(convtrace.__doc__)
    except reports.Failed as failed:
        raise UsageError(str(failed)) from None


def _show(work):
    """Displays the report that `work` returns; while it works, for how long it does."""
    begun, place = time.monotonic(), None

    def put(data):
        if place is None:
            return display(data, raw=True, display_id=True)
        place.update(data, raw=True)
        return place

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        report = pool.submit(work)
        while not concurrent.futures.wait([report], timeout=1).done:
            place = put({"text/plain": "comparing, %d s" % (time.monotonic() - begun)})
    if place is not None and report.exception():
        put({"text/plain": ""})
    put({"text/html": report.result()._repr_html_(), "text/plain": str(report.result())})


def load(ipython):
    ipython.register_magic_function(convtrace, "line")
