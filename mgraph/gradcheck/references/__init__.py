"""Programs of JAX evaluated without it: by NumPy, and in decimals of sixty digits."""
