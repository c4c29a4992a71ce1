"""Files: Marian's items (``.npz``, ``.bin``), a graph's parameters, dumps of its values."""
