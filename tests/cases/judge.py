"""Compares a report of convtrace-diff with the known truth of a case."""
from faults import FAULTS

# The good verdicts: right (step, phase and module), neighbour (step and phase; parent, child or next in execution) and told
# (by a fact). The others: wrong (diverged, elsewhere), missed (no divergence is reported).
GOOD = ("right", "neighbour", "told")
GOALS = {"f32": 0.95, "bf16": 0.85, "autocast": 0.85}


def span(name, leaves):
    """@return the positions in execution of a module's first and last leaf; None if it has none."""
    places = [i for i, leaf in enumerate(leaves) if leaf == name or leaf.startswith(name + ".")]
    return (places[0], places[-1]) if places else None


def next_to(meant, found, modules):
    """@return whether the module `found` is the parent of `meant`, inside of it, or runs directly before or after it."""
    if found == meant.rpartition(".")[0] or found.startswith(meant + "."):
        return True
    leaves = [name for name in modules if name and not any(other.startswith(name + ".") for other in modules)]
    a, b = span(meant, leaves), span(found, leaves)
    return bool(a and b) and (a[0] - b[1] == 1 or b[0] - a[1] == 1)


def verdict(report):
    """@return identical, rounding or diverged; same if the report does not distinguish the first two."""
    repeated = report["verdict"] == "same" and report["first_bit_difference"] is None
    return report.get("agreement") or ("identical" if repeated else report["verdict"])


def headlined(root):
    """@return the root as in the report's headline: at the module that made the value, if that is known."""
    made = ((root or {}).get("made_by") or {}).get("place")
    return {**root, "scope": made["scope"] or ""} if made else root


def place(root):
    return f"step {root['step']} {root['phase']} {root['scope'] or '(root)'} {root['slot']}"


def told(fault, model, report):
    """@return the report's facts that show the fault: its setting, in its module, from its step on."""
    place = fault.module(model)
    return [fact for fact in report.get("facts", []) if fact["name"] == fault.fact and fact["step"] == fault.since
            and place in (None, fact["first"])]


def judge(case, report, modules):
    """@return (verdict, the report's evidence as text)."""
    root = headlined(report["root"])
    if not case.fault:
        return ("diverged", place(root)) if root else (verdict(report), "")
    fault = FAULTS[case.fault]
    facts = told(fault, case.model, report)
    words = [f"{fact['name']} {fact['base']} \\| {fact['cand']}" for fact in facts]
    if root:
        words.append(place(root))
    found = located(fault, case.model, root, modules)
    return ("told" if facts and found not in GOOD else found), ", ".join(words) or verdict(report)


def located(fault, model, root, modules):
    if root is None:
        return "missed"
    if root["step"] != fault.step or root["phase"] not in fault.phases.split():
        return "wrong"
    meant = fault.module(model)
    if meant is None or root["scope"] == meant:
        return "right"
    return "neighbour" if next_to(meant, root["scope"], modules) else "wrong"
