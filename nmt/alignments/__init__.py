"""Word alignment of parallel texts, and lexical tables counted from it."""
