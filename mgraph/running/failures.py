"""The classes of XLA's errors, the same in every run of a program."""

from __future__ import annotations

import re

from jax.errors import JaxRuntimeError

from ..errors import DeviceError, OutOfMemoryError

_STATUS = re.compile(
    "(ABORTED|ALREADY_EXISTS|CANCELLED|DATA_LOSS|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|INVALID_ARGUMENT"
    "|NOT_FOUND|OUT_OF_RANGE|PERMISSION_DENIED|RESOURCE_EXHAUSTED|UNAVAILABLE|UNIMPLEMENTED|UNKNOWN): "
)
"""How XLA's errors begin."""


def failure_of(error: Exception, label: str) -> Exception | None:
    """What to raise for arrays on different devices, and for an error of XLA, which JAX raises as a
    ``ValueError`` if the program has run before; ``None`` for other errors. label: names the program."""
    said = str(error)
    if said.startswith("Received incompatible devices"):
        return DeviceError(
            f"{label}: its arrays are on different devices; call graph.set_device() before graph.function() "
            "and before an optimizer's first update, and pass arrays of that device"
        )
    code = _STATUS.match(said)
    if code is None:
        return None
    reason = said[code.end() :].partition("\n")[0]
    if "out of memory" in reason.lower():
        return OutOfMemoryError(f"{label}: {reason.rstrip('.')}")
    return JaxRuntimeError(said)
