"""docs/gpu-results.md, whose results are written from docs/gpu-results/*.json; the rest of the page is kept."""
from .check import PARTS

BEGIN = "<!-- Written by tools/gpu-check --report from docs/gpu-results/. -->\n"
END = "<!-- End of what is written. -->\n"
NEVER = """**convtrace has not run on GPU hardware yet.** CUPTI callbacks, the launch gate and the statistics kernels
are tested against the fake driver of `tests/fakecuda`, the kernels are compiled by nvcc 13.0 for sm_80 to sm_120 and
their arithmetic is tested on the CPU. No number in this repository was measured on a GPU.
"""


def page(text, results):
    """The page with other results. @param results of hardware, as results.py has them."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + "\n".join(sections(results)) + "\n" + END + rest.split(END)[1]


def sections(results):
    def age(one):
        return max(run["date"] for run in one["runs"]), one["device"], one["commit"]

    newest = sorted(results, key=age, reverse=True)
    yield summary(newest) if newest else NEVER + "\n" + summary(newest)
    for one in newest:
        yield "\n".join(["## %s, commit %s" % (one["device"], one["commit"]), "", *map(run_line, one["runs"]), "",
                         "| part | check | result | on | seconds | what |", "|---|---|---|---|---|---|",
                         *check_lines(one), ""])


def summary(results):
    lines = ["| part | what | on hardware |", "|---|---|---|"]
    for part, title in PARTS.items():
        counts = [counted(one, part) for one in results]
        lines.append("| %d | %s | %s |" % (part, title, "; ".join(filter(None, counts)) or "never"))
    return "\n".join(lines) + "\n"


def counted(results, part):
    """How the checks of a part ended, "" where none of them ran."""
    ended = [check["result"] for check in results["checks"].values() if check["part"] == part]
    if not {"pass", "fail"} & set(ended):
        return ""
    return "%s, %s: %s" % (results["device"], results["commit"], ", ".join(
        "%d %s" % (ended.count(result), result) for result in ("pass", "fail", "skip", "not run") if result in ended))


def run_line(run):
    versions = ", ".join("%s %s" % item for item in sorted(run["versions"].items()))
    return "- %s: driver for CUDA %s, kernel module %s; %s" % (
        run["date"], run["driver"], run["kernel_module"] or "not told", versions)


def check_lines(results):
    for name, check in sorted(results["checks"].items(), key=lambda item: (item[1]["part"], item[0])):
        date = results["runs"][check["run"]]["date"]
        yield "| %d | %s | %s | %s | %.1f | %s |" % (
            check["part"], name, check["result"], date, check["seconds"], cell(check))


def cell(check):
    numbers = ", ".join("%s %s" % (key, "%.4g" % value if isinstance(value, float) else value)
                        for key, value in sorted(check["numbers"].items()))
    return "; ".join(part for part in (check["why"].strip(), numbers) if part).replace("|", "\\|").replace("\n", " ")
