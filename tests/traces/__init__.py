"""Trainings by real Marian, update by update, and whether ours are the same."""
