"""How a node becomes what was declared: pyinfra facts and operations of our own, and the planners behind them.

A planner is pure: text that a node answered goes in, a plan comes out. ``facts`` asks, ``operations`` turns a plan
into commands; neither decides anything. Every operation can be repeated, says why it has nothing to do, compares
with what is in force (not with what it did last time), and refuses when the node could not be read.
"""
