"""Packed columns, and rows that are stored as differences to like ones: FORMAT.md section 6."""
from .flat import BadBuffer

_WIDTH, _DENSE, _RESERVED = 0x0F, 0x10, 0xE0
M64 = 0xFFFFFFFFFFFFFFFF


def unpack(stored, rows, most=8):
    """@return a packed column as a list of `rows` numbers of at most `most` bytes."""
    if len(stored) == 0:
        return [0] * rows
    head, width = stored[0], stored[0] & _WIDTH
    if head & _RESERVED or not 1 <= width <= most:
        raise BadBuffer("a packed column of unknown form")
    if head & _DENSE:
        return _join_planes(stored[1:], rows, width)
    bitmap_bytes = (rows + 7) // 8
    if len(stored) < 1 + bitmap_bytes:
        raise BadBuffer("a packed column of another length than its rows")
    bitmap = int.from_bytes(stored[1:1 + bitmap_bytes], "little")
    if bitmap >> rows:
        raise BadBuffer("a packed column has rows beyond its end")
    filled = [row for row, bit in enumerate(reversed(bin(bitmap)[2:])) if bit == "1"]
    column = [0] * rows
    for row, value in zip(filled, _join_planes(stored[1 + bitmap_bytes:], len(filled), width)):
        column[row] = value
    return column


def _join_planes(planes, count, width):
    if len(planes) != count * width:
        raise BadBuffer("a packed column of another length than its rows")
    words = bytearray(8 * count)
    for plane in range(width):
        words[plane::8] = planes[plane * count:(plane + 1) * count]
    return memoryview(words).cast("Q").tolist()


def unzigzag(stored):
    """@return the signed difference that a number encodes, mod 2^64."""
    return (stored >> 1) ^ (M64 if stored & 1 else 0)


def like_rows(table, rows):
    """@return [(distance to the preceding like row or 0, signature)] of the rows, and the number of signatures."""
    found, back, signatures = [], 0, 0
    for row, step in enumerate(unpack(table.column(0, "B"), rows)):
        back = (back + unzigzag(step)) & M64
        if back > row:
            raise BadBuffer("a row is like one before the first")
        if back == 0:
            found.append((0, signatures))
            signatures += 1
        else:
            found.append((back, found[row - back][1]))
    return found, signatures


def unpack_fixed(table, signatures, fixed):
    return {name: unpack(table.column(field, "B"), signatures, most) for name, (field, most) in fixed.items()}


class RowTable:
    """Rows of one kind. `fixed` maps names to (field of the table, bytes of a value): columns with one row per
    signature. `varying` maps names to fields: columns of differences to the like row."""

    def __init__(self, table, rows, fixed, varying):
        self.like, self.signatures = like_rows(table, rows)
        self.fixed = unpack_fixed(table, self.signatures, fixed)
        self._varying = {name: unpack(table.column(field, "B"), rows)
                         for name, field in varying.items()}

    def rows(self):
        """Yields (signature, values) in order; values by the names of `varying`."""
        history = []
        for row, (back, signature) in enumerate(self.like):
            before = history[row - back] if back else {}
            values = {name: (before.get(name, 0) + unzigzag(column[row])) & M64
                      for name, column in self._varying.items()}
            history.append(values)
            yield signature, values

    def fixed_of(self, signature):
        return {name: column[signature] for name, column in self.fixed.items()}
