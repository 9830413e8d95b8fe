"""Process groups as records name them, and the numbers of their calls: a collective is counted in its group, a transfer
by its peer and tag."""
import itertools

NO_PEER = 0xFFFFFFFF
_MOST_TAGS = 1 << 16  # tags of a group whose transfers are counted


class Group:
    """A process group as records name it, and its counts of calls. `transfers`: (operation, peer, tag) -> (count, turn of the
    last one), the least recently used first. `is_gloo`: gloo serves it."""

    __slots__ = ("name", "members", "rank", "size", "calls", "transfers", "turns", "is_gloo")

    def __init__(self, name, rank, size, is_gloo):
        self.name, self.members, self.rank, self.size, self.is_gloo = name, 0, rank, size, is_gloo
        self.calls, self.transfers, self.turns = 0, {}, itertools.count(1)

    def number(self, op, peer, tag, turn=None):
        """Counts a call. @param turn  that of a reception whose source was not known when it was called
        @return how many such calls came before"""
        if op.tag is None:
            self.calls += 1
            return self.calls - 1
        count, _ = self.transfers.pop((op.name, peer, tag), (0, 0))
        self.transfers[op.name, peer, tag] = count + 1, turn or next(self.turns)
        if len(self.transfers) > _MOST_TAGS:
            del self.transfers[next(iter(self.transfers))]
        return count

    def last_turn(self, op, peer, tag):
        """@return the turn of the last such transfer that was counted; 0 if there is none."""
        return self.transfers.get((op.name, peer, tag), (0, 0))[1]


class FromAny:
    """A reception from any source, which is recorded when it is complete. `before`, `behind`: the fields of its record before
    the peer, and between the peer and its number."""

    __slots__ = ("group", "op", "tag", "turn", "before", "behind")

    def __init__(self, group, op, tag, before, behind):
        self.group, self.op, self.tag, self.before, self.behind = group, op, tag, before, behind
        self.turn = next(group.turns)

    def comes_behind(self, other):
        """@return whether this reception was called after `other` (or None) and may receive the next message of the same
        source and tag."""
        return other is not None and (other.group, other.tag) == (self.group, self.tag) and other.turn < self.turn

    def source_of(self, work):
        """@return the source's rank in the group; NO_PEER if the backend does not tell it, or a later transfer from it was
        counted."""
        try:
            source = work._source_rank()
        except Exception:
            return NO_PEER
        return NO_PEER if source < 0 or self.group.last_turn(self.op, source, self.tag) > self.turn else source

    def number(self, source):
        return self.group.number(self.op, source, self.tag, self.turn)


def ranges(ranks):
    """@return the text of ranks: "0-2,8" for [0, 1, 2, 8]."""
    parts = []
    for rank in ranks:
        if parts and parts[-1][1] + 1 == rank:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in parts)
