"""Models that copy, with parameters that are made, not trained: for measuring translation at any size."""
