"""The witnesses of a gradient: a function at a point, JAX's derivative, slopes along lines, kinks."""
