"""Training: schedule, updates, checkpoints."""
