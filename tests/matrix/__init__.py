"""Small models of every type and option of Marian's: what it makes of them, and whether we make the same."""
