"""Which tests are quick ones."""

from __future__ import annotations

QUICK = """
assignment backward bridges_jax checkpointing cli compiled_once dynamic element_types expression finite
function fusion golden gradcheck graph house inits layers leaves numbers operators optimizers
own_operators plain_jax platforms printing programs rnn scan scorer search_marian session traces transformer
translator
""".split()
"""Files of which all but the slow tests are quick ones: what a version of Python or JAX can break."""
