"""The sections in the order in which they run: what decides most comes first, in case the time ends.

Each has CHECKS, and AT_ONCE: whether its checks may run beside each other, which those that measure time may not.
"""
from . import aliasing, driver, frameworks, overhead, robustness, statistics

ALL = {"driver": driver, "statistics": statistics, "aliasing": aliasing, "frameworks": frameworks,
       "overhead": overhead, "robustness": robustness}
