"""Data of every node, unless its group or the node itself says otherwise."""

architecture = "virtual-rack"
"""The reference architecture that the rack shall be: a file of architectures/."""

ssh_user = "root"
ssh_strict_host_key_checking = "yes"
"""pyinfra's own default accepts any host key, whatever ssh_config says."""
ssh_connect_retries = 3
"""A rack that was switched on a moment ago answers a little later."""

_timeout = 900
"""Seconds for one command. Without one, a node that freezes holds up the whole run; installing packages on an
emulated machine is the slowest thing that is done."""
