"""What the benchmarks of training share: models, a text to train on, and the process that trains."""
