"""The kinds of vocabulary; ``nmt.text.vocab.load_vocab`` chooses among them."""
