"""One reboot for all changes of a run that need one: the reasons are collected and shown; the inventory allows it."""
