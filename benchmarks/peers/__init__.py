"""What the benchmarks compare with: Marian, CTranslate2, and the same models written by hand in plain JAX."""
