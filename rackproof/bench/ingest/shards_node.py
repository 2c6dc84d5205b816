# mypy: ignore-errors
"""Number and size of a data set's shards, before they are written. Runs on the nodes and on the controller."""

SPARE = 1.03  # of the computed size: headers of records and archives, and how far a mean size may miss
RECORD = 400  # bytes of a sample beside its JPEG: fields of a record, blocks of an archive


def shards_of(spec):
    """Number of distinct shards, and of all."""
    distinct = -(-spec["samples"] // spec["per_shard"])
    return distinct, distinct * spec["copies"]


def bytes_of(spec):
    """Declared bytes of all shards."""
    return int(spec["samples"] * spec["copies"] * (spec["mean_bytes"] + RECORD) * SPARE)
