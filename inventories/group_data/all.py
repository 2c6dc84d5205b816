"""Data of every node, unless its group or the node itself says otherwise."""

architecture = "virtual-rack"
"""Reference architecture of the rack: a file of architectures/."""

ssh_user = "root"
ssh_strict_host_key_checking = "yes"
"""pyinfra's own default accepts any host key, whatever ssh_config says."""
ssh_connect_retries = 1
"""sshd turns connections away at random when many come at once (MaxStartups)."""

_timeout = 900
"""Seconds for one command, so that a frozen node does not hold up the whole run. The slowest command installs
packages on an emulated machine."""
