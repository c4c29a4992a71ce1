"""The training schedule: progress, learning rate, log lines and stopping."""
