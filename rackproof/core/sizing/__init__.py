"""The sizing model: what a rack can feed, which stage binds, and what each answer depends on."""
