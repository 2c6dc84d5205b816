"""One transaction of apt or dnf, used by every installation of the kit."""
