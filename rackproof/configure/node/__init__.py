"""Settings of a machine that are no package and no network: command line, idle states, interrupts, scratch, users."""
