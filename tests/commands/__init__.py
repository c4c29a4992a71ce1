"""Commands drawn at random, of which our output is compared with Marian's; see README.md."""
