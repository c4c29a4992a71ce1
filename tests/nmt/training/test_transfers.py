"""What updates copy between host and devices, what they wait for, and whose buffers they reuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph.running.programs import Program
from nmt.files import create_model
from nmt.settings import TRAIN
from nmt.text.batches import pad
from nmt.training.learning.learner import Learner
from nmt.training.update import UpdateResult
from tests.helpers.small_models import TEXT, TRANSFORMER, small_trainer

FIRST, UPDATES = 4, 10
"""The updates that are watched come after those that compile."""
READS = ("__array__", "__float__", "__int__", "__index__", "__bool__", "item", "tolist", "block_until_ready")
"""How Python code waits for an array."""


class Traffic:
    """Explicit copies, ``("put", arrays)`` and ``("get", arrays)``, and each update after its own copies,
    ``("update", result)``. Other copies are errors: JAX's guard catches those to a device; this class catches
    those to the host and waiting, which the guard does not see on CPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, Any]] = []
        self._allowed = False
        self._number = 0
        for name in ("device_put", "device_get"):
            monkeypatch.setattr(jax, name, self._noted(name.removeprefix("device_"), getattr(jax, name)))
        monkeypatch.setattr(jax, "block_until_ready", self._refused("jax.block_until_ready", None))
        for name in READS:
            kind: Any = type(jnp.zeros(()))
            monkeypatch.setattr(kind, name, self._refused(name, getattr(kind, name)))
        monkeypatch.setattr(Learner, "update", self._begun(Learner.update))

    @property
    def watching(self) -> bool:
        return FIRST <= self._number < FIRST + UPDATES

    def _noted(self, name: str, copy: Callable[..., Any]) -> Callable[..., Any]:
        def noted(tree: Any, *where: Any, **named: Any) -> Any:
            if jax.tree.leaves(tree):
                self.events.append((name, jax.tree.leaves(tree)))
            before, self._allowed = self._allowed, True
            try:
                return copy(tree, *where, **named)
            finally:
                self._allowed = before

        return noted

    def _refused(self, name: str, read: Any) -> Callable[..., Any]:
        def refused(*arguments: Any, **named: Any) -> Any:
            assert self._allowed or not self.watching, f"{name} waits for a device"
            return read(*arguments, **named)

        return refused

    def _begun(self, update: Callable[..., UpdateResult]) -> Callable[..., UpdateResult]:
        def begun(learner: Learner, *arguments: Any, number: int, **named: Any) -> UpdateResult:
            self._number = number
            jax.config.update("jax_transfer_guard", "disallow" if self.watching else "allow")
            if number == FIRST:
                self.events.clear()
            result = update(learner, *arguments, number=number, **named)
            if self.watching:
                self.events.append(("update", result))
            return result

        return begun


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    yield Traffic(monkeypatch)
    jax.config.update("jax_transfer_guard", "allow")


PARTS = 2
"""Parts of each batch."""
OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "train_sets": [TEXT / "train.german", TEXT / "train.english"],
    "vocabs": [TEXT / "german.yml", TEXT / "english.yml"],
    "transformer_heads": 2,
    "transformer_dim_ffn": 8,
    "enc_depth": 1,
    "dec_depth": 1,
    "mini_batch": 8,
    "max_length": 20,
    "transformer_dropout": 0.1,
    "exponential_smoothing": 0.1,
    "after_batches": FIRST + UPDATES,
    "disp_freq": 1000,
    "cost_scaling": ("8", "3"),
    "optimizer_delay": PARTS,
}


def test_ten_updates_copy_batches_ahead_and_wait_for_the_update_before(
    traffic: Traffic, tmp_path: Path
) -> None:
    small_trainer(model=tmp_path / "m.npz", **OPTIONS).train()
    ends = [i for i, (kind, _) in enumerate(traffic.events) if kind == "update"]
    assert len(ends) == UPDATES
    for start, end in pairwise(ends):
        before, *copied = traffic.events[start + 1 : end]
        # While this update is computed: the figures of the previous one, then what the next one needs.
        assert before[0] == "get" and [array.shape for array in before[1]] == [(), (), ()]
        assert [kind for kind, _ in copied] == ["put", "put"] * PARTS + ["put"]
        assert [len(arrays) for _, arrays in copied] == [1, 11] * PARTS + [1]
        assert {type(array) for _, arrays in copied for array in arrays} == {np.ndarray}
    updates = [traffic.events[end][1] for end in ends]
    fetched = [traffic.events[end + 1][1] for end in ends[1:]]
    for result, figures in zip(updates, fetched, strict=False):
        own = result.cost, result.labels, result.gradient_norm
        assert all(found is figure for found, figure in zip(figures, own, strict=True))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of the programs that run."""
    found: list[tuple[Any, ...]] = []
    run = Program.run

    def noting(self: Program, function: Callable[..., Any], *arguments: Any) -> Any:
        found.append(arguments)
        return run(self, function, *arguments)

    monkeypatch.setattr(Program, "run", noting)
    return found


@pytest.mark.filterwarnings("error:Some donated buffers were not usable")
def test_updates_write_over_what_they_replace(ran: list[tuple[Any, ...]]) -> None:
    created = create_model(replace(TRANSFORMER, type="lm-transformer", dim_vocabs=(11,), dec_depth=1), seed=1)
    values = {"exponential_smoothing": 0.1, "cost_scaling": ("8", "3"), "quantize_bits": 8}
    options = TRAIN.from_python({"train_sets": ("source", "target"), **values})
    learner = Learner.from_options(created, options, seed=1)
    batches = [pad([[[3, 4, 0], [5, 0]]], (2, 4), target=True)] * 2
    learner.update(batches, learn_rate=0.1, number=1)
    (first, *_), (total, params, *_), (state, *_) = ran
    assert first is None and len(jax.tree.leaves(total)) == len(params) + 2
    assert len(jax.tree.leaves(state)) > 5 * len(params)
    assert all(array.is_deleted() for array in jax.tree.leaves((total, state)))
    assert learner.state().steps == 1
