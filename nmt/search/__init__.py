"""Beam search: which words follow, what is kept of each step, and which translations were best."""
