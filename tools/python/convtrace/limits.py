"""The limits that a reader checks before it allocates: FORMAT.md section 9."""
PAYLOAD_BYTES = 64 << 20  # stored and raw
CHUNK_EVENTS = 1 << 16
LAUNCH_OPERANDS = 4096
CHUNK_OPERANDS = 1 << 20  # operands that repeat an earlier launch take no bytes
DIMENSIONS = 16
RANGE_HASHES = 256
PAD_ROWS = 4096
TEXT_BYTES = 64 << 10
PART_BYTES = 1 << 20  # of a stored value
BASE_DEPTH = 16
DEFINITIONS = 1 << 24  # of a kind
STACK_FRAMES = 256
