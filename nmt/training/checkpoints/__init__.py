"""Checkpoints in Marian's files, from which training resumes."""
