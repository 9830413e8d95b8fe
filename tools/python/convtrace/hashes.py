"""The hash of a value's bytes, version 2 (FORMAT.md, section 6.10)."""
_PRIME = 2 ** 64 - 59
_BASE = 0x9E3779B97F4A7C18


def hash_of(data):
    """@return the hash of bytes: those of a value in logical order, without gaps, little-endian."""
    hash_ = 0
    for at in reversed(range(0, len(data), 4)):
        word = data[at:at + 4] + b"\1"  # a one above its last byte
        hash_ = (hash_ * _BASE + int.from_bytes(word, "little")) % _PRIME
    return hash_


def concat_hash(parts):
    """@return the hash of bytes from the hashes of their consecutive parts.

    parts: pairs of a hash as an integer and the part's number of bytes, a multiple of 4 for all but the last.
    For example, `int(event["hash"], 16), event["bytes"]` of q, k and v give the hash of a fused qkv, and those of
    shards that are consecutive in memory give the hash of the whole. Traces with `hash_version` 1 have other hashes.
    """
    whole = words = rest = 0
    for hash_, size in parts:
        if not 0 <= hash_ < _PRIME or size < 0:
            raise ValueError("no hash and number of bytes: (%r, %r)" % (hash_, size))
        if rest:
            raise ValueError("parts but the last have multiples of 4 bytes")
        whole = (whole + hash_ * pow(_BASE, words, _PRIME)) % _PRIME
        words, rest = words + size // 4, size % 4
    return whole
