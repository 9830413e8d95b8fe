"""The checks by topic; importing them lists them, within a part in this order."""
from . import frameworks, compiled, comparing, collectives, ways, statistics, pytorch, preparation, aliasing, overhead, robustness, logs  # noqa: F401
