"""Trials of training that need separate processes."""
