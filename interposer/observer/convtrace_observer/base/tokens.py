"""Tokens: objects by which the observer recognizes the program's objects without referring to them (docs/adr/0032)."""
import sys


def forget_dead(known, keys=None):
    """Drops the entries whose objects are gone. `known`: id of a token -> a tuple that begins with the token, to which nothing
    else of the observer refers. Other threads may add to it meanwhile. `keys`: the entries to examine, some of which may have
    been dropped; all by default."""
    alone = ({},)
    references = sys.getrefcount(alone[0])
    for key in list(known) if keys is None else keys:
        value = known.get(key)
        if value is not None and sys.getrefcount(value[0]) == references:
            known.pop(key, None)
