"""Which tests are quick ones."""

from __future__ import annotations

QUICK = """
assignment bridges_jax checkpointing cli dynamic element_types engine_edges expression finite function fusion
golden gradcheck graph house inits layers learner matrix numbers operators optimizers plain_jax platforms
programs scan scorer search_marian session traces translator translator_marian
""".split()
"""Files of which all but the slow tests are quick ones: what a version of Python or JAX can break."""
