"""The sections in the order in which they run: what decides most comes first, in case the time ends. Each has CHECKS."""
from . import aliasing, driver, frameworks, overhead, robustness, statistics

ALL = {"driver": driver, "statistics": statistics, "aliasing": aliasing, "frameworks": frameworks,
       "overhead": overhead, "robustness": robustness}
