"""The sizing model: throughput of a rack, its binding stage, and the inputs that each answer depends on."""
