"""The catalogue's operators and their twins: what one would write for them in jax.numpy."""
