"""JAX functions with custom rules, as the witnesses see them: with the rules and without."""
