"""JAX functions with rules of their own, as the witnesses see them: with the rules and without."""
