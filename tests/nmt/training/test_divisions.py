"""Updates by groups of devices that divide the parameters: the numbers are those of one device."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmt.models.parameters import parameters
from nmt.training.learning.division import divided_axes
from tests.helpers import divisions
from tests.nmt.training.test_parallel import CLOSE, ENVIRONMENT

pytestmark = pytest.mark.slow

DIVIDED = [
    (model, divisions.text_of(*place)) for model, (_, places) in divisions.PLACES.items() for place in places
]


@pytest.fixture(scope="module")
def found() -> dict:
    """What ``tests.helpers.divisions`` says."""
    script = Path(divisions.__file__)
    said = subprocess.run([sys.executable, str(script)], env=ENVIRONMENT, check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout)


@pytest.mark.parametrize(("model", "place"), DIVIDED)
def test_updates_are_those_of_one_device(found: dict, model: str, place: str) -> None:
    alone, divided = (found["updates"][model][where] for where in ("alone", place))
    for figure in ("costs", "labels", "norms"):
        np.testing.assert_allclose(divided[figure], alone[figure], rtol=CLOSE)
    for part in ("params", "moments", "average"):
        for name, value in alone[part].items():
            np.testing.assert_allclose(
                divided[part][name], value, rtol=CLOSE, atol=CLOSE, err_msg=f"{part} {name}"
            )
    assert divided["restored"], "a state can be restored, bit for bit"


@pytest.mark.parametrize("model", divisions.PLACES)
def test_each_device_holds_its_part(found: dict, model: str) -> None:
    options, places = divisions.PLACES[model]
    sizes = {name: math.prod(p.shape) for name, p in parameters(options).items()}
    for groups, parts, shard_state in places:
        axes = divided_axes(options, parts)
        numbers = sum(size // parts if name in axes else size for name, size in sizes.items())
        held = found["updates"][model][divisions.text_of(groups, parts, shard_state)]["held"]
        whole = 4 + 3 * 4 * numbers  # the count of updates; parameters, Adagrad's moments, averages
        if shard_state:
            assert whole / groups < held < 1.3 * whole / groups, "what is odd is not divided"
        else:
            assert held == whole


@pytest.mark.parametrize("place", ["1 x 2", "2 x 4"])
def test_each_device_needs_less_memory(found: dict, place: str) -> None:
    said = found["updates"]["tied"]
    assert 0 < said[place]["memory"] < 0.8 * said["alone"]["memory"]


def test_a_training_goes_on_with_another_division(found: dict) -> None:
    # Two updates by a group of two devices, two by one, two by a group of four, against six by one.
    assert found["resumed"] == {"": [], ".optimizer.npz": []}
