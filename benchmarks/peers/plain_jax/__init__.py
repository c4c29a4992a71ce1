"""The same models written by hand in plain JAX, as a yardstick for compiled steps."""
