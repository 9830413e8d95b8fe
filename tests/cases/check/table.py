"""All cases and all clean programs by their names, and where their traces are."""
import held_out
import held_out_2
import held_out_3
from clean import CLEAN
from faulty import FAULTY

HELD_OUT = held_out.HELD_OUT | held_out_2.HELD_OUT_2 | held_out_3.HELD_OUT_3
CLEAN_HELD_OUT = held_out_2.CLEAN_HELD_OUT | held_out_3.CLEAN_HELD_OUT_3
CASES, ALL_CLEAN = FAULTY | HELD_OUT, CLEAN | CLEAN_HELD_OUT


def ranks(name):
    """@return the number of a program's ranks; for a clean one its attribute `ranks`, or 1."""
    case, _, form = name.partition("+")
    return getattr(ALL_CLEAN[case], "ranks", 1) if form == "clean" else CASES[case].ranks


def only(name):
    """@return the only check that judges a program, from its attribute `only`; None: all checks do."""
    case, _, form = name.partition("+")
    return getattr(ALL_CLEAN[case] if form == "clean" else CASES[case].program, "only", None)


def paths(name, folder):
    """@return the paths of a program's traces, one for each rank."""
    count = ranks(name)
    return [folder / (f"{name}.ctrace" if count == 1 else f"{name}.{rank}.ctrace") for rank in range(count)]
