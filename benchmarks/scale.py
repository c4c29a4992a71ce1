"""How cost grows: with layers, length, vocabulary and batch, in training and decoding; and with devices.

A transformer of 2+2 layers of 128, 8,000 words, 32 sentences of 24 words; in each table one of these numbers
changes. "of the first" is the ratio to the first row, taken within a round: growth is linear if it doubles
when the number doubles. "TFLOP/s" and "% of peak" are those of ``benchmarks.train``. Decoding is by an
untrained model, with a beam of 4 and as many words as the source has.

Last, updates that devices share: one device, all devices with the parameters on each, all with the parameters
divided (``--shard-state``), all as one group (``--tensor-parallel``), and how much memory each device then
needs. Words a second are those of all devices together. On GPUs (``--gpu``) more devices should be faster.
Devices of a CPU share its cores: there a ratio of 1 is ideal, and anything above it is the cost of sharing.

``--expected`` prints the tables of docs/scale.md instead: what updates exchange, and how they scale, by
arithmetic. ``--exchanged`` compiles updates for devices of the CPU (as many as ``--devices`` says), reads
from the programs what they exchange, and prints it next to the arithmetic.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.measuring import Samples, Table, alternate, positive, print_machine
from benchmarks.measuring.chips import add_chip, peak_here
from benchmarks.scaling.tables import page_tables, show_simulation
from benchmarks.training.models import MODELS
from benchmarks.training.work import RATES, rates_of, work_of
from mgraph import Adam, Type
from nmt.files import create_model
from nmt.runtime import devices
from nmt.search.beam_search import BeamSearch
from nmt.settings.model_options import ModelOptions
from nmt.settings.sections import BeamOptions
from nmt.text.batches import Batch
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.creation import word_vocab
from nmt.text.vocabs.loading import load_vocab
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.placement import ONE_DEVICE, Placement, SharedPlacement
from nmt.training.learning.step import UpdateStep

MIB = 1 << 20
MS = 1e3
BEAM = 4


class Size(NamedTuple):
    """What a step works on."""

    layers: int = 2
    length: int = 24
    vocabulary: int = 8000
    batch: int = 32

    def model_options(self, dim: int = 128, **other: Any) -> ModelOptions:
        """The options of a transformer; ``other`` options override them."""
        own = {
            "type": "transformer",
            "dim_emb": dim,
            "transformer_dim_ffn": 4 * dim,
            "enc_depth": self.layers,
            "dec_depth": self.layers,
        }
        dim_vocabs = (self.vocabulary, self.vocabulary)
        return ModelOptions(**own | other, dim_vocabs=dim_vocabs, tied_embeddings_all=True)

    def words(self) -> np.ndarray:
        """Random ids, (batch, length), with no ``</s>``, which is 0."""
        shape = self.batch, self.length
        return np.random.default_rng(0).integers(2, self.vocabulary, shape, np.int32)

    def sentences(self) -> Batch:
        mask = np.ones((self.batch, self.length), np.float32)
        return Batch((self.words(),) * 2, (mask,) * 2, self.batch)


class Arithmetic(NamedTuple):
    """The type to compute in, and its peak rate."""

    precision: str
    peak: float | None
    """TFLOP/s."""


AXES: dict[str, tuple[int, ...]] = {
    "layers": (1, 2, 4),
    "length": (12, 24, 48, 96),
    "vocabulary": (2000, 8000, 32000),
    "batch": (8, 16, 32, 64),
}


def learner(options: ModelOptions, precision: str, placement: Placement = ONE_DEVICE) -> Learner:
    """The learner of a new model."""
    objective = Objective(create_model(options, seed=1), LossOptions(0.1), Type(precision))
    step = UpdateStep(Adam(1e-4, clip_norm=1.0))
    return Learner(objective, step, seed=1, smoothing=1e-4, placement=placement)


def update(trainer: Learner, batch: Batch) -> Callable[[], Any]:
    """One update by the batch."""
    return lambda: trainer.update([batch], learn_rate=1e-4, number=1).cost


def training(size: Size, precision: str) -> Callable[[], Any]:
    return update(learner(size.model_options(), precision), size.sentences())


def decoding(size: Size) -> Callable[[], Any]:
    model = create_model(size.model_options(), seed=1)
    vocab = _vocab(size.vocabulary)
    search = BeamSearch(
        [model],
        source_vocab=vocab,
        target_vocab=vocab,
        options=BeamOptions(beam_size=BEAM, max_length_factor=1.0),
    )
    source = [[*map(int, ids[:-1]), vocab.eos_id] for ids in size.words()]
    return lambda: search.search(source)


def second_of(run: Callable[[], Any]) -> Callable[[], float]:
    """Seconds of the second of two runs: the first one waits until the candidate before it, which may be much
    larger, has given its memory back."""

    def seconds() -> float:
        jax.block_until_ready(run())
        start = time.perf_counter()
        jax.block_until_ready(run())
        return time.perf_counter() - start

    return seconds


@cache
def _vocab(words: int) -> Vocab:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.yml"
        path.write_bytes(word_vocab(f"word{number}".encode() for number in range(words - 2)))
        return load_vocab(path)


def show_growth(
    what: str,
    make: Callable[[Size], Callable[[], Any]],
    axes: Mapping[str, Sequence[int]],
    rounds: int,
    rates: Callable[[Size, Samples], Iterable[Samples | str]] | None = None,
) -> None:
    """Print a table for each number that changes; rates: the cells of ``RATES``."""
    for axis, values in axes.items():
        sizes = {value: Size(**{axis: value}) for value in values}
        found = alternate({str(v): second_of(make(size)) for v, size in sizes.items()}, rounds)
        first = found[str(values[0])]
        columns = [f"{what}: {axis}", "ms", "of the first", "words/s", *(RATES if rates else ())]
        table = Table(columns, width=24)
        for value, size in sizes.items():
            seconds = found[str(value)]
            milliseconds = seconds.times(MS)
            words = seconds.rates(size.batch * size.length)
            own = rates(size, seconds) if rates else ()
            table.row(f"{value:,}", milliseconds, seconds.over(first), words, *own)
        print()


def show_devices(
    used: Sequence[jax.Device], size: Size, options: ModelOptions, arithmetic: Arithmetic, rounds: int
) -> None:
    """Print the cost of updates that devices share."""
    placements = {
        "one device": ONE_DEVICE,
        f"{len(used)} devices, shared": SharedPlacement(used),
        f"{len(used)} devices, divided": SharedPlacement(used, shard_state=True),
    }
    if options.transformer_heads % len(used) == 0:
        placements["one group of them"] = SharedPlacement(used, tensor_parallel=len(used))
    batch = size.sentences()
    trainers = {
        name: learner(options, arithmetic.precision, placement) for name, placement in placements.items()
    }
    runs = {name: second_of(update(trainer, batch)) for name, trainer in trainers.items()}
    found = alternate(runs, rounds)
    print(f"{len(used)} x {used[0].device_kind}, {size.batch} sentences of {size.length} words")
    columns = ["an update", "ms", "of one", "words/s", *RATES, "state MiB", "update MiB"]
    table = Table(columns, width=24)
    work = work_of(options, batch)
    for name, seconds in found.items():
        trainer = trainers[name]
        table.row(
            name,
            seconds.times(MS),
            seconds.over(found["one device"]),
            seconds.rates(batch.words),
            *rates_of(work, seconds, arithmetic.peak, trainer.placement.groups * trainer.placement.parts),
            trainer.held / MIB,
            trainer.memory(batch) / MIB,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES), help="what changes (all)")
    parser.add_argument("--rounds", type=positive, default=5, help="(%(default)s)")
    parser.add_argument("--devices", type=positive, default=2, help="of the CPU; 1: none share (%(default)s)")
    parser.add_argument("--gpu", action="store_true", help="all GPUs instead of devices of the CPU")
    parser.add_argument(
        "--dim", type=positive, default=128, help="of the model that devices share (%(default)s)"
    )
    transformers = [name for name, options in MODELS.items() if options["type"] == "transformer"]
    parser.add_argument("--model", choices=transformers, help="that devices share, in place of one of --dim")
    parser.add_argument(
        "--batch", type=positive, default=32, help="sentences of the updates that devices share (%(default)s)"
    )
    add_chip(parser)
    parser.add_argument("--expected", action="store_true", help="print what arithmetic expects, and end")
    parser.add_argument("--exchanged", action="store_true", help="print what programs exchange, and end")
    given = parser.parse_args()
    if given.expected:
        print("\n\n".join(page_tables()))
        return
    used = devices.start_all(0, ("all",)) if given.gpu else devices.start_all(cpu_devices=given.devices)
    if given.exchanged:
        show_simulation(used, Size().model_options(given.dim))
        return
    print_machine(rounds=given.rounds, devices=len(used), precision=given.precision)
    arithmetic = Arithmetic(given.precision, peak_here(given))
    axes = {axis: AXES[axis] for axis in given.axes}
    show_growth(
        "update",
        lambda size: training(size, arithmetic.precision),
        axes,
        given.rounds,
        lambda size, taken: rates_of(work_of(size.model_options(), size.sentences()), taken, arithmetic.peak),
    )
    show_growth("decoding", decoding, axes, given.rounds)
    if len(used) > 1:
        size = Size(batch=given.batch)
        options = size.model_options(given.dim, **MODELS.get(given.model, {}))
        show_devices(used, size, options, arithmetic, given.rounds)


if __name__ == "__main__":
    main()
