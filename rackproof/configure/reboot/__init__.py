"""One reboot for everything that needs one: collected, shown, and done only when it is allowed."""
