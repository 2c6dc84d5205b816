"""The pure core: models, statistics, plans and the judge.

Nothing below this package opens a file, a socket or a clock; ``tests/unit/test_layers.py`` enforces it.
"""
