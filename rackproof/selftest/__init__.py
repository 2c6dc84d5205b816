"""Proof that every check can fail: faults of machines and damaged answers, tried on written racks."""
