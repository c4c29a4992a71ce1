"""Translation on several devices: the CPU is divided into two, which needs a separate process."""

from __future__ import annotations

import json

import pytest

from tests.helpers.fresh import python
from tests.helpers.places import DATA

OPTIONS = DATA / "options"
WORDS = [str(DATA / "search" / "left-right.npz"), str(OPTIONS / "source.yml"), str(OPTIONS / "target.yml")]
CODE = """
import json, sys
import jax
from nmt import Translator

model, *vocabs = sys.argv[1:]
words = "the cat sees the red house and a zebra sleeps".split()
lines = [" ".join(words[n % 7 :][: 1 + n % 5]) for n in range(200)]
options = {"beam_size": 2, "n_best": True, "word_scores": True}
both = Translator(model, vocabs, **options, cpu_threads=2, cpu_devices=2)
found = [both.translate(lines) for _ in range(2)]
used = sorted({device.id for array in jax.live_arrays() for device in array.devices()})
print(json.dumps([found, Translator(model, vocabs, **options).translate(lines), used, both.search.searches]))
"""


@pytest.mark.slow
def test_several_devices_translate_as_one_does() -> None:
    found, expected, used, searches = json.loads(python(CODE, *WORDS, JAX_PLATFORMS="cpu"))
    assert found == [expected] * 2
    assert used == [0, 1] and searches == 2
