"""Proof that every check can fail: faults and damaged answers, tried on written and recorded racks."""
