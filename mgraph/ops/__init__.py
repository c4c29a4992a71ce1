"""The operators, one file per family: each node operator with the function that users call beside it."""
