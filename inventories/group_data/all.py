"""Data of all nodes; groups and nodes override it."""

architecture = "virtual-rack"
"""Reference architecture of the rack: a file of architectures/."""

ssh_user = "root"
ssh_strict_host_key_checking = "yes"
"""pyinfra's default accepts any host key and ignores ssh_config."""

_timeout = 900
"""Seconds for one command, so that a frozen node does not block the run. The slowest command installs packages on an
emulated machine."""
