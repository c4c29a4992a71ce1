"""Text in and out: lines, samples and batches of them, Marian's output formats."""
