"""Kinks: where a function has two slopes, what its rule may say there, and what JAX says.

``relu`` at 0, ``max`` at a tie, ``abs`` at 0 and ``clip`` at a bound have a slope on each side and no
derivative. A rule may choose any number between the two, a subgradient: mgraph's ``relu`` and ``jax.grad``'s
say 0. That number is compared with the slopes of both sides along each line, including lines along which ties
stay ties, and is shown next to JAX's choice. A point near a kink has a derivative; steps that cross the kink
do not count against the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_NEAR = 1e-2
"""Reports show kinks up to this distance."""
_SHOWN = 5
"""The most kinks that a report shows."""


@dataclass(frozen=True)
class Kink:
    """A kink that a line crosses."""

    where: tuple[int, ...] | None
    """The element of the input that is moved; ``None`` for a line that moves all elements."""
    distance: float
    """0 for a kink at the point; otherwise the shortest step that crosses it."""
    left: float = 0.0
    """For a kink at the point: the slope before it, of the outputs contracted with their adjoint."""
    right: float = 0.0
    """The slope after it."""
    rule: float = 0.0
    """What the rule says."""
    jax: float = 0.0
    """What JAX says."""

    @property
    def at_the_point(self) -> bool:
        """Whether the point itself is a kink, so that there is no derivative."""
        return self.distance == 0

    def __str__(self) -> str:
        line = "all elements" if self.where is None else str(list(self.where))
        if not self.at_the_point:
            return f"{line}: a kink within {self.distance:.0e}; longer steps do not count against the rule"
        slopes = f"slopes {self.left:.4g} and {self.right:.4g}"
        return f"{line}: at a kink, {slopes}, rule {self.rule:.4g}, jax {self.jax:.4g}"


def about_kinks(kinks: Sequence[tuple[str, Kink]]) -> list[str]:
    """Lines about kinks of named inputs: the nearest ones, those at the point first."""
    near = [(name, kink) for name, kink in kinks if kink.distance <= _NEAR]
    near.sort(key=lambda found: found[1].distance)
    lines = [f"{name} {kink}" for name, kink in near[:_SHOWN]]
    return [*lines, f"and {len(near) - _SHOWN} more kinks"] if len(near) > _SHOWN else lines
