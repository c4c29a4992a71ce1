"""Small models of every Marian type and option: what Marian computes, and whether we compute the same."""
