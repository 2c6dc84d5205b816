"""How collectives are launched."""
