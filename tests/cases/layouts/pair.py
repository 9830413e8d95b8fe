"""A pair of runs of one training in two layouts."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Pair:
    base: str  # layout:ranks[:word...]
    cand: str
    root: str = ""  # expression over "step phase scope slot"; none: no fault
    full: bool = False  # with --full alone
    told: bool = False  # that the layouts differ, which nothing in the traces says
    map: str = ""  # file for --map
