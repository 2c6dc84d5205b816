"""Data of every node, unless its group or the node itself says otherwise."""

architecture = "virtual-rack"
"""The reference architecture that the rack shall be: a file of architectures/."""

ssh_user = "root"
ssh_strict_host_key_checking = "yes"
"""pyinfra's own default accepts any host key, whatever ssh_config says."""
ssh_connect_retries = 1
"""sshd turns connections away at random when many come at once (MaxStartups)."""

_timeout = 900
"""Seconds for one command. Without one, a node that freezes holds up the whole run; installing packages on an
emulated machine is the slowest thing that is done."""
