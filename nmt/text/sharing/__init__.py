"""Texts shared by several processes: ranges of lines, outputs in parts, and the reading of a corpus."""
