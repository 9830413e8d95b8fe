"""Objects of the program that are known by something that they alone have (docs/adr/0032)."""
import sys


def forget_dead(known):
    """Drops what is gone. `known`: id of a token -> a tuple that begins with the token, to which nothing else of ours
    refers. Other threads may add to it meanwhile."""
    alone = ({},)
    references = sys.getrefcount(alone[0])
    for key, value in list(known.items()):
        if sys.getrefcount(value[0]) == references:
            known.pop(key, None)
