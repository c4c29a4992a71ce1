"""Commands drawn at random, whose output is compared with Marian's; see README.md."""
