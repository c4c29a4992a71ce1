"""Which tests run how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

QUICK = """
assignment backward bridges_jax checkpointing compiled_once dynamic element_types expression finite
function fusion golden gradcheck graph house inits layers leaves numbers operators optimizers
own_operators plain_jax platforms printing programs rnn scan scorer search_marian transformer translator
""".split()
"""Files whose tests are quick, except the slow and the thorough ones: they test what a version of Python or
JAX can break."""


def beyond_samples(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests of functions marked ``sampled`` that are not among their samples.

    Raises ``UsageError`` if a sample names no test of its function, unless only some tests were asked for.
    """
    functions: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        function, _, parameters = item.nodeid.partition("[")
        functions.setdefault(function, {})[parameters.removesuffix("]")] = item
    for function, tests in functions.items():
        item = next(iter(tests.values()))
        mark = item.get_closest_marker("sampled")
        if mark is None:
            continue
        samples = set(mark.args) or set([*tests][:: mark.kwargs["every"]])
        yield from (test for parameters, test in tests.items() if parameters not in samples)
        if not (samples <= tests.keys() or any("[" in argument for argument in item.config.args)):
            raise pytest.UsageError(
                f"{function} has no {sorted(samples - tests.keys())}, has {sorted(tests)}"
            )
