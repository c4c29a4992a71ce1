"""mgraph: Marian's expression graph in Python on JAX."""
