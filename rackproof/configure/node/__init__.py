"""A node beside packages and network: kernel arguments, idle states, interrupts, scratch array, accounts."""
