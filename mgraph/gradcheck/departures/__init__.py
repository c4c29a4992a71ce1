"""A whole loss, operator by operator: which rule departs from JAX, and how far that spreads."""
