"""From a structure to a JAX computation; nothing here compiles or runs one."""
