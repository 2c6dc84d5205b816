"""One transaction of apt or dnf: what every installation of the kit goes through."""
