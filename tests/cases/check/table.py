"""All cases and all clean programs by their names, and where their traces are."""
from faulty import FAULTY
from held_out import HELD_OUT

try:
    from clean import CLEAN
except ModuleNotFoundError as error:
    if error.name != "clean":
        raise
    CLEAN = {}

CASES = FAULTY | HELD_OUT


def ranks(name):
    """Of a clean program its attribute `ranks`, if it has one."""
    case, _, form = name.partition("+")
    return getattr(CLEAN[case], "ranks", 1) if form == "clean" else CASES[case].ranks


def paths(name, folder):
    """One for each rank."""
    count = ranks(name)
    return [folder / (f"{name}.ctrace" if count == 1 else f"{name}.{rank}.ctrace") for rank in range(count)]
