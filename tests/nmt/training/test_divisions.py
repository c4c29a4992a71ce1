"""Updates on groups of devices that divide the parameters: the numbers are those of one device."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmt.models.parameters import parameters
from nmt.training.learning.division import divided_axes
from tests.helpers import divisions
from tests.nmt.training.test_parallel import CLOSE, ON_CPUS


@functools.cache
def found(*model_and_place: str) -> dict:
    """What ``tests.helpers.divisions`` prints for a model and a place, or for several divisions."""
    script = [sys.executable, str(Path(divisions.__file__)), *model_and_place]
    said = subprocess.run(script, env=os.environ | ON_CPUS, check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "place"), divisions.PLACES)
@pytest.mark.sampled("tied-1 x 2", "tied-4 x 2, sharded", "s2s-2 x 2, sharded")
def test_updates_are_those_of_one_device_which_holds_less(model: str, place: str) -> None:
    alone, divided = found(model, "alone"), found(model, place)
    for figure in ("costs", "labels", "norms"):
        np.testing.assert_allclose(divided[figure], alone[figure], rtol=CLOSE)
    for part in ("params", "moments", "average"):
        for name, value in alone[part].items():
            np.testing.assert_allclose(
                divided[part][name], value, rtol=CLOSE, atol=CLOSE, err_msg=f"{part} {name}"
            )
    assert divided["restored"], "a state can be restored, bit for bit"

    groups, parts, shard_state = divisions.PLACES[model, place]
    if model == "tied" and not shard_state:
        assert 0 < divided["memory"] < 0.8 * alone["memory"]
    options = divisions.OPTIONS[model]
    sizes = {name: math.prod(p.shape) for name, p in parameters(options).items()}
    axes = divided_axes(options, parts)
    numbers = sum(size // parts if name in axes else size for name, size in sizes.items())
    whole = 4 + 3 * 4 * numbers  # the count of updates; parameters, Adagrad's moments, averages
    if shard_state:
        assert whole / groups < divided["held"] < 1.3 * whole / groups, "what is odd is not divided"
    else:
        assert divided["held"] == whole


@pytest.mark.thorough
def test_a_training_goes_on_with_another_division() -> None:
    # Two updates on a group of two devices, two on one, two on a group of four, compared with six on one.
    assert found() == {"": [], ".optimizer.npz": []}


def test_arrays_in_another_order_are_compared(tmp_path: Path) -> None:
    one, two = np.float32([1]), np.float32([2])
    np.savez(tmp_path / "one.npz", x=one, y=one)
    np.savez(tmp_path / "other.npz", y=one, x=two)
    assert divisions.different(str(tmp_path / "one.npz"), str(tmp_path / "other.npz")) == ["x"]
