"""Five-point differences, where extrapolation would take too long or needs a more precise type."""

from __future__ import annotations

STEP = 2e-4
"""The step in float64, relative to the size of the input."""
PLACES = (-2.0, -1.0, 1.0, 2.0)
"""The sample points, in steps."""
WEIGHTS = (1 / 12, -8 / 12, 8 / 12, -1 / 12)
"""The weights of the samples; their sum is divided by the step."""
