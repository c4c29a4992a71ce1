"""Models whose parameters are made, not trained, so that they copy: for measuring translation at any size."""
