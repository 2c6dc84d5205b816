"""Configuration of nodes: pyinfra facts and operations of the kit, and their planners.

Planners are pure: they turn answers of a node into a plan. ``facts`` read, ``operations`` turn plans into commands;
neither decides anything. Every operation is idempotent, logs why it has nothing to do, compares with the actual state
(not with that of the last run), and refuses a node that could not be read.
"""

import sys

# pyinfra's command turns bytecode off; every run would compile the modules of this package and of the deploys again.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
