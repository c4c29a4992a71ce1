"""``GraphSettings``: what a user sets on a graph before building it, and state shared by its runs."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np

from .arrays import checked_seed, flag, whole
from .device import find_device, memory_of
from .errors import ArgumentError, GraphError
from .leaves import Parameters
from .rules import check_rule_set
from .running.memo import Memo
from .running.memory import MIB
from .types import Type, as_type


class GraphSettings:
    """The settings of an ``ExpressionGraph`` and the parameters that some of them concern."""

    def __init__(self, inference: bool, seed: int, derivatives: str) -> None:
        self.seed = checked_seed(seed)
        self._derivatives = check_rule_set(derivatives)
        self.device: jax.Device | None = None
        """The device set by ``set_device``; ``None`` is JAX's default device."""
        self.workspace_mb: int | None = None
        self.checkpointing = 0
        """0 keeps all forward values for gradients, 1 those of checkpoints, a larger number also those
        between that many parts."""
        self.throw_nan = False
        self._inference = flag("ExpressionGraph", "inference", inference)
        self._element_type = Type.float32
        self._parameters = Parameters()
        self.strict_broadcasting = False
        """Whether elementwise operators expect children of equal shape."""
        self.runs = itertools.count(1)
        """Run numbers; each run and each call of a function draws its own random numbers."""
        self.dynamic = False
        """Whether ``forward()`` was called on a growing graph; inference programs then return all values."""
        self.memo = Memo()
        """In inference, values that depend on parameters alone; they outlive ``clear()``."""

    @property
    def derivatives(self) -> str:
        """The rule set that gradients are computed with: ``"rules"``, ``"jax"`` or ``"marian"``."""
        return self._derivatives

    @derivatives.setter
    def derivatives(self, rule_set: str) -> None:
        self._derivatives = check_rule_set(rule_set)

    def set_device(self, number: int, kind: str = "cpu") -> None:
        """Run on device ``number`` of ``kind`` ``"cpu"`` or ``"gpu"``.

        Parameters that have a value move there; functions made before and the moments of optimizers do not.
        If this machine or this JAX has no such device, ``DeviceError`` lists the available ones.
        """
        self.device = find_device(number, kind)
        for node in self._parameters.values():
            node.move()

    def reserve_workspace_mb(self, megabytes: int) -> None:
        """Set the memory in MiB that a run may use; a negative number leaves that much of the device's free.

        XLA allocates what a program needs, so this reserves nothing; ``fits()`` says whether it is enough.
        ``GraphError`` for 0, as in Marian; ``ArgumentError`` for anything but a whole number.
        """
        megabytes = whole("reserve_workspace_mb", "the number of MiB", megabytes)
        if megabytes == 0:
            raise GraphError("reserve_workspace_mb expects a number of MiB other than 0")
        self.workspace_mb = megabytes

    def reserved_bytes(self) -> int | None:
        """The bytes that ``reserve_workspace_mb`` reserved; ``None`` if it was not called."""
        if self.workspace_mb is None:
            return None
        left = 0 if self.workspace_mb > 0 else memory_of(self.device)
        return left + self.workspace_mb * MIB

    def set_checkpointing(self, enabled: bool = True, *, parts: int | None = None) -> None:
        """Keep only the values of checkpoints for the gradients, and recompute the others.

        Checkpoints are nodes marked by ``checkpoint(node)``. ``parts`` adds more, which cut the graph into
        that many parts of similar memory where few values are live: in a stack of layers, between layers.
        Checkpointing takes less memory, as ``memory()`` shows, and up to a third more computation,
        for the same gradients. ``ArgumentError`` for fewer than 2 parts. Source: Chen et al. 2016; Marian,
        ``setCheckpointing``.
        """
        if parts is not None and (not isinstance(parts, int | np.integer) or parts < 2):
            raise ArgumentError(f"set_checkpointing expects at least 2 parts, got {parts!r}")
        self.checkpointing = int(parts or 1) if flag("set_checkpointing", "enabled", enabled) else 0

    def set_throw_nan(self, throw: bool = True) -> None:
        """Watch for NaN and infinity: the first node that has one raises ``NonFiniteError``.

        ``forward()`` names the first node whose value is not finite, ``backward()`` the first whose
        gradient is not, with children, shapes and the user's line. ``forward()`` then always computes the
        values, and nothing is recomputed for checkpoints. Source: Marian, ``--throw-nan``.
        """
        self.throw_nan = flag("set_throw_nan", "throw", throw)

    def set_default_element_type(self, type_: Any) -> None:
        """Set the element type of constants and parameters made without one; ``GraphError`` after the first
        parameter."""
        if len(self._parameters):
            raise GraphError("set_default_element_type must come before the first parameter")
        self._element_type = as_type(type_)

    @property
    def default_element_type(self) -> Type:
        return self._element_type

    def set_inference(self, inference: bool) -> None:
        """Turn inference on or off. In inference there are no gradients, and layers apply no dropout;
        operators such as ``dropout`` still do, as in Marian."""
        self._inference = flag("set_inference", "inference", inference)

    def is_inference(self) -> bool:
        return self._inference
