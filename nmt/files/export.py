"""Translation models as ONNX files: an encoder and one step of the decoder, for other runtimes."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgraph import ArgumentError, Node, Type
from mgraph.bridges.onnx import check_onnx, distinct_primes, export_onnx, extra
from nmt.files.new_folder import new_folder
from nmt.models import Model, Source
from nmt.models.functions import sentence_inputs, state_inputs

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
BATCH, PLACES = "batch", "places"


def export_model(model: Model, folder: str | os.PathLike[str], *, beam: int = 1, opset: int = 18) -> None:
    """Write ``encoder.onnx`` and ``decoder.onnx`` into ``folder``, which is created if necessary.

    encoder: maps ``source_ids`` int32 and ``source_mask`` float32, both (batch, length), the mask 1 at words
    with ``</s>``, to ``encoder.*``, the encoder state, and ``decoder.*``, the decoder state before the first
    step. A second source is ``source2_ids`` and ``source2_mask``, with its own length; a language model takes
    ``batch`` instead, an int64 scalar. Transformers also take ``places``, an int64 scalar: how many words the
    hypotheses of a sentence may have together, which is enough for ``places / beam`` steps.

    decoder: maps ``encoder.*``, ``decoder.*``, ``words`` int32 (batch * beam), the last words, and
    ``position`` int32 (), the number of the step from 0, to ``logits`` (batch * beam, vocabulary), not
    normalized, and ``next.*``, the decoder state after the step. At position 0 words are ignored. Without
    sources it also takes ``batch`` if the beam is not 1.

    Batch, lengths and places are dynamic, up to the recorded size of about 2,000 words, because positions are
    looked up in a table. ``beam`` is fixed; hypotheses of a sentence are adjacent. A search that reorders
    hypotheses must reorder the states with batch * beam rows, too; states with batch rows (keys and values of
    all hypotheses of a sentence) stay: ``decoder.ancestors`` tells which keys and values a hypothesis sees.
    ``ArgumentError`` for a beam below 1, else the errors of ``mgraph.bridges.export_onnx``.
    """
    check_export(beam, opset)
    path = Path(folder)
    names = _source_names(model.sources)
    sizes = {n for value in model.params.values() for n in value.shape} | {beam}
    lengths = [f"{name}_length" for name in names]
    open_axes = [BATCH, *lengths, PLACES]
    axes = dict(zip(open_axes, distinct_primes(len(open_axes), sizes), strict=True))
    graph = model.new_graph()
    sentences = [
        sentence_inputs(graph, name, axes[BATCH], axes[length])
        for name, length in zip(names, lengths, strict=True)
    ]
    encoded = model.encode(sentences)
    start = model.start(graph, encoded, axes[BATCH], beam, [axes[PLACES]])
    needed = axes if _has(start, axes[PLACES]) else {k: v for k, v in axes.items() if k != PLACES}
    outputs = {**_prefixed("encoder", encoded), **_prefixed("decoder", start)}
    inputs = [node for sentence in sentences for node in sentence]
    with new_folder(path):
        export_onnx(graph, outputs, inputs, path / ENCODER, opset=opset, axes=needed)
        _export_step(model, encoded, start, beam, path / DECODER, opset, needed)


def check_export(beam: int, opset: int) -> None:
    """Raise the errors of ``export_model`` that do not depend on the model."""
    if beam < 1:
        raise ArgumentError(f"expected a beam of at least 1, got {beam}")
    check_onnx(opset)


def _source_names(sources: int) -> list[str]:
    """The prefixes of each source's inputs."""
    return ["source", *(f"source{i}" for i in range(2, sources + 1))][:sources]


def _export_step(
    model: Model,
    encoded: Mapping[str, Node],
    start: Mapping[str, Node],
    beam: int,
    path: Path,
    opset: int,
    axes: Mapping[str, int],
) -> None:
    graph = model.new_graph()
    before = state_inputs(graph, "encoder", encoded)
    state = state_inputs(graph, "decoder", start)
    words = graph.input("words", (axes[BATCH] * beam,), Type.int32)
    position = graph.input("position", (), Type.int32)
    step = model.step(before, state, words, position, beam)
    outputs = {"logits": step.logits, **_prefixed("next", step.state)}
    inputs = [*before.values(), *state.values(), words, position]
    export_onnx(graph, outputs, inputs, path, opset=opset, axes=axes)


def _prefixed(prefix: str, nodes: Mapping[str, Node]) -> dict[str, Node]:
    return {f"{prefix}.{name}": node for name, node in nodes.items()}


def _has(nodes: Mapping[str, Node], size: int) -> bool:
    return any(size in node.shape for node in nodes.values())


class OnnxModel:
    """The files of ``export_model``, run by onnxruntime (``pip install 'mgraph-jax[onnx]'``) without JAX."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        runtime = extra("onnxruntime")
        providers = ["CPUExecutionProvider"]
        self.encoder, self.decoder = (
            runtime.InferenceSession(os.path.join(folder, name), providers=providers)
            for name in (ENCODER, DECODER)
        )
        self._taken, self._needed = (
            [i.name for i in session.get_inputs()] for session in (self.encoder, self.decoder)
        )
        self.sources = sum(name.endswith("_ids") for name in self._taken)
        """The number of source streams."""

    def encode(self, sources: Sequence[Source], places: int, *, batch: int = 1) -> dict[str, np.ndarray]:
        """The encoder state and the first decoder state, by output name.

        ``sources`` are the ids int32 and the mask float32 of each source stream, both (batch, length);
        ``places`` as in ``export_model``; without sources ``batch`` is the number of sentences.
        ``ArgumentError`` for a wrong number of sources.
        """
        if len(sources) != self.sources:
            raise ArgumentError(f"the exported model has {self.sources} sources, got {len(sources)}")
        inputs = {BATCH: np.array(batch, np.int64), PLACES: np.array(places, np.int64)}
        for name, (ids, mask) in zip(_source_names(self.sources), sources, strict=True):
            inputs |= {f"{name}_ids": ids, f"{name}_mask": mask}
        found = _run(self.encoder, {name: inputs[name] for name in self._taken})
        return {**found, BATCH: inputs[BATCH]} if BATCH in self._needed else found

    def step(self, state: Mapping[str, Any], words: np.ndarray, position: int) -> dict[str, np.ndarray]:
        """``logits`` (batch * beam, vocabulary) and the decoder state for the next step, under the names of
        the decoder's inputs.

        ``state`` is what ``encode`` or the last step returned; ``words`` int32 (batch * beam) are the last
        words, and ``position`` counts the steps from 0.
        """
        given = {**state, "words": words, "position": np.array(position, np.int32)}
        found = _run(self.decoder, {name: given[name] for name in self._needed if name in given})
        return {name.replace("next.", "decoder.", 1): value for name, value in found.items()}

    def greedy(
        self,
        sources: Sequence[Sequence[int]],
        eos_id: int,
        *,
        suppressed: Collection[int] = (),
        max_length_factor: float = 3.0,
    ) -> list[list[int]]:
        """Greedy decoding, up to and including ``</s>``.

        ``sources`` are word ids that end in ``</s>``, translated as one batch. Needs files with beam 1 and
        one source. A source of n words, ``</s>`` included, gets at most ``max_length_factor * n`` words; an
        empty one becomes ``</s>``. Words in ``suppressed`` are never chosen.
        """
        lengths = [len(source) for source in sources]
        ids, mask = np.zeros((len(sources), max(lengths)), np.int32), np.zeros((len(sources), max(lengths)))
        for row, source in enumerate(sources):
            ids[row, : len(source)], mask[row, : len(source)] = source, 1
        limits = [max(1, math.ceil(np.float32(max_length_factor) * np.float32(n))) for n in lengths]
        state = self.encode([Source(ids, mask.astype(np.float32))], max(limits))
        words = np.zeros(len(sources), np.int32)
        found = [[eos_id] if n == 1 else [] for n in lengths]
        for position in range(max(limits)):
            alive = [
                row
                for row, chosen in enumerate(found)
                if chosen[-1:] != [eos_id] and len(chosen) < limits[row]
            ]
            if not alive:
                break
            after = self.step(state, words, position)
            logits = after.pop("logits")
            logits[:, list(suppressed)] = -np.inf
            words = logits.argmax(-1).astype(np.int32)
            state.update(after)
            for row in alive:
                found[row].append(int(words[row]))
        return found


def _run(session: Any, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))
