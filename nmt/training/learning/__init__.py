"""Updates: from a batch to new parameters, as compiled programs on one or several devices."""
