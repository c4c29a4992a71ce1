"""Trainings by real Marian, update by update, compared with ours."""
