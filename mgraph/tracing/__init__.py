"""From a structure to a JAX computation, without compiling or running it."""
