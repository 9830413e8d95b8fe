"""Objects of the program that are known by something that they alone have (docs/adr/0032)."""
import sys


def forget_dead(known, keys=None):
    """Drops what is gone. `known`: id of a token -> a tuple that begins with the token, to which nothing else of ours
    refers. Other threads may add to it meanwhile. `keys`: those that are looked at, of which some may be dropped already; all
    by default."""
    alone = ({},)
    references = sys.getrefcount(alone[0])
    for key in list(known) if keys is None else keys:
        value = known.get(key)
        if value is not None and sys.getrefcount(value[0]) == references:
            known.pop(key, None)
