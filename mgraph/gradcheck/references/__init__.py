"""JAX programs evaluated without JAX: by NumPy, and in decimals of sixty digits."""
