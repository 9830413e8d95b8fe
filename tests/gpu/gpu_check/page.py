"""docs/gpu-results.md, whose tables are written from docs/gpu-results/*.json and the timing model; the rest of the page is kept."""
import collections
import pathlib
import sys

from .results import ran

BEGIN = "<!-- Written by tools/gpu-check --report from docs/gpu-results/. -->\n"
END = "<!-- End of what is written. -->\n"
NEVER = "**convtrace has not run on GPU hardware yet.**\n"
MOST_OF_A_REASON = 60

# number: of the check's numbers; least: the goal is at least, not at most; needs: a number without which it means nothing
Goal = collections.namedtuple("Goal", "what check number goal least needs predicted", defaults=(False, None, None))
STEP, BF16, COST = "GPT-like step", "GPT-like step in bf16", "launch cost"
GOALS = (
    Goal("f32 step over plain: `launches`", STEP, "launches", 1.02),
    Goal("`stats`", STEP, "stats", 1.05, predicted="f32"),
    Goal("`stats`, one step of 50", STEP, "every50", 1.01),
    Goal("`hash`", STEP, "hash", None, predicted="hash"),
    Goal("values of every kernel", STEP, "every_kernel", 1.25, needs="every_kernel_values"),
    Goal("bf16 step over plain: `stats`", BF16, "stats", None, predicted="bf16"),
    Goal("f32 step as a graph: `stats`", "GPT-like step as a graph", "stats", None),
    Goal("ResNet-like step: `stats`", "ResNet-like step", "stats", 1.05),
    Goal("recorded launch, more than bare, ns", COST, "added_ns", 400),
    Goal("... over a bare one", COST, "added_share", 0.25),
    Goal("... beside CUPTI's part, ns", COST, "own_ns", 150),
    Goal("256 MiB over CUB's sum: f32", "speed", "stats.gpu.f32", 1.10),
    Goal("f32, one sign", "speed", "stats.gpu.f32_one_sign", 1.10),
    Goal("bf16", "speed", "stats.gpu.bf16", 1.10),
    Goal("f8e4m3fn", "speed", "stats.gpu.f8e4m3fn", 1.25),
    Goal("f64", "speed", "stats.gpu.f64", 1.10),
    Goal("f32, 256 MiB, TB/s", "speed", "stats.gpu.f32_rate", 3.0, least=True),
    Goal("1000 x 64 KiB over 64 MiB", "speed", "stats.gpu.batch", 1.5),
    Goal("1000 x 4 KiB, us", "speed", "stats.gpu.thousand_us", 30),
    Goal("4 KiB over an empty kernel", "speed", "stats.gpu.small", 1.5),
    Goal("NaN everywhere over numbers", "speed", "stats.gpu.nan", 6),
    Goal("stored values, share of a pinned copy", "speed", "snapshot.gpu.copy", 0.92, least=True),
)


def page(text, results):
    """The page with other results. @param results of hardware, as results.py has them."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + "\n".join(sections(results)) + "\n" + END + rest.split(END)[1]


def sections(results):
    def age(one):
        return max(run["date"] for run in one["runs"]), one["device"], one["commit"]

    newest = sorted(results, key=age, reverse=True)
    if not newest:
        yield NEVER
    yield from (run_line(one) for one in newest)
    yield "\n".join(["", "| what | goal | measured | predicted: before / with log and fold, dedupe |", "|---|---|---|---|", *goal_lines(newest), ""])
    yield "\n".join(["| check that failed last | at | why |", "|---|---|---|", *failed_lines(newest), ""])


def run_line(one):
    counts = collections.Counter(check["result"] for check in one["checks"].values())
    last = max(one["runs"], key=lambda run: run["date"])
    return "- %s, %s: %s, driver %s, torch %s: %s" % (
        one["device"], one["commit"], last["date"], last["kernel_module"] or "for CUDA %s" % last["driver"],
        last["versions"].get("torch", "none"), ", ".join("%d %s" % (counts[key], key) for key in ("pass", "fail", "skip", "not run") if counts[key]))


def goal_lines(newest):
    for row in GOALS:
        goal = "" if row.goal is None else "%s %g" % (">=" if row.least else "<=", row.goal)
        yield "| %s | %s | %s | %s |" % (row.what, goal, measured(row, newest), predicted(row.predicted))


def measured(row, newest):
    for one in newest:
        numbers = one["checks"].get(row.check, {}).get("numbers", {})
        value = numbers.get(row.number)
        if isinstance(value, (int, float)) and (row.needs is None or numbers.get(row.needs)):
            missed = row.goal is not None and (value < row.goal if row.least else value > row.goal)
            return "%.4g%s" % (value, ", missed" if missed else "")
    return "never"


def predicted(kind):
    """@return the ratios predicted by the timing model, for two designs of the kernels."""
    if kind is None:
        return ""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
    import gpu_model

    ratios = [gpu_model.predict("H100", design, kind)[1] for design in ("tickets", "log and fold, dedupe")]
    return "%.3f / %.3f" % tuple(ratios)


def failed_lines(newest):
    """Checks whose last result is a failure."""
    last = {}
    for one in newest:
        for name, check in one["checks"].items():
            if ran(check):
                last.setdefault(name, (one, check))
    for name, (one, check) in sorted(last.items()):
        if check["result"] == "fail":
            yield "| %s | %s | %s |" % (name, one["commit"], cell(check["why"]))


def cell(why):
    text = " ".join(why.split()).replace("|", "\\|")
    return text if len(text) <= MOST_OF_A_REASON else text[:MOST_OF_A_REASON].rsplit(" ", 1)[0] + " ..."
