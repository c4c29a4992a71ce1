"""The kinds of vocabulary; ``nmt.vocab.load_vocab`` chooses among them."""
