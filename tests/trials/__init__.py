"""Trials of training that take processes of their own."""
