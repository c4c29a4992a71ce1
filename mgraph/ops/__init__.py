"""The operators, one file per family: each node operator next to the function that users call."""
