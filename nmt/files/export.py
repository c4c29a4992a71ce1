"""Translation models as ONNX files: an encoder and one step of the decoder, for other runtimes."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mgraph import ArgumentError, ExpressionGraph, Node, Type
from mgraph.bridges import export_onnx
from mgraph.bridges.onnx.axes import distinct_primes
from mgraph.bridges.onnx.exporting import check_opset
from mgraph.bridges.onnx.extras import extra
from nmt.models import Model, Source

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
BATCH, STEPS = "batch", "steps"


def export_model(model: Model, folder: str | os.PathLike[str], *, beam: int = 1, opset: int = 18) -> None:
    """Write ``encoder.onnx`` and ``decoder.onnx`` into ``folder``, which is made if there is none.

    encoder: ``source_ids`` int32 and ``source_mask`` float32, both (batch, length), the mask 1 at words,
    ``</s>`` included, to ``encoder.*``, the encoder state, and ``decoder.*``, the decoder state before the
    first step. A second source is ``source2_ids`` and ``source2_mask``, of a length of its own; without
    sources, in a language model, there is ``batch`` instead, an int64 scalar. Transformers take ``steps``
    too, an int64 scalar, the most steps there will be: the size of the caches.

    decoder: ``encoder.*``, ``decoder.*``, ``words`` int32 (batch * beam), the words chosen last, and
    ``position`` int32 (), the number of the step from 0, to ``logits`` (batch * beam, vocabulary), not
    normalized, and ``next.*``, the decoder state after the step. At position 0 words are ignored. Without
    sources it takes ``batch`` too if the beam is not 1.

    Batch, lengths and steps are open: any size up to the recorded one, about 2,000 words, as positions are
    looked up in a table. ``beam`` is fixed: hypotheses of a sentence lie side by side. ``ArgumentError`` for
    a beam below 1, else the errors of ``mgraph.bridges.export_onnx``.
    """
    check_export(folder, beam, opset)
    path = Path(folder)
    names = _source_names(model.sources)
    sizes = {n for value in model.params.values() for n in value.shape} | {beam}
    lengths = [f"{name}_length" for name in names]
    open_axes = [BATCH, *lengths, STEPS]
    axes = dict(zip(open_axes, distinct_primes(len(open_axes), sizes), strict=True))
    graph = model.new_graph()
    sentences = [
        _sentences(graph, name, axes[BATCH], axes[length])
        for name, length in zip(names, lengths, strict=True)
    ]
    encoded = model.encode(graph, sentences)
    start = model.start(graph, encoded, axes[BATCH], beam, axes[STEPS])
    needed = axes if _has(start, axes[STEPS]) else {k: v for k, v in axes.items() if k != STEPS}
    outputs = {**_prefixed("encoder", encoded), **_prefixed("decoder", start)}
    inputs = [node for sentence in sentences for node in sentence]
    with _new_folder(path):
        export_onnx(graph, outputs, inputs, path / ENCODER, opset=opset, axes=needed)
        _export_step(model, encoded, start, beam, path / DECODER, opset, needed)


def check_export(folder: str | os.PathLike[str], beam: int, opset: int) -> None:
    """The errors of ``export_model`` that do not depend on the model; nothing is made."""
    if beam < 1:
        raise ArgumentError(f"expected a beam of at least 1, got {beam}")
    check_opset(opset)
    extra("onnx")


@contextmanager
def _new_folder(path: Path) -> Iterator[None]:
    """A folder that is there while the block runs, and stays if it ends well or it was there before."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if missing:
            shutil.rmtree(path)
        for folder in missing[1:]:
            folder.rmdir()
        raise


def _source_names(sources: int) -> list[str]:
    """What the names of each source's inputs begin with."""
    return ["source", *(f"source{i}" for i in range(2, sources + 1))][:sources]


def _sentences(graph: ExpressionGraph, name: str, batch: int, length: int) -> Source:
    ids = graph.input(f"{name}_ids", (batch, length), Type.int32)
    return Source(ids, graph.input(f"{name}_mask", (batch, length), Type.float32))


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
    before = _inputs(graph, "encoder", encoded)
    state = _inputs(graph, "decoder", start)
    words = graph.input("words", (axes[BATCH] * beam,), Type.int32)
    position = graph.input("position", (), Type.int32)
    step = model.step(graph, before, state, words, position, beam)
    outputs = {"logits": step.logits, **_prefixed("next", step.state)}
    inputs = [*before.values(), *state.values(), words, position]
    export_onnx(graph, outputs, inputs, path, opset=opset, axes=axes)


def _inputs(graph: ExpressionGraph, prefix: str, state: Mapping[str, Node]) -> dict[str, Node]:
    """Inputs that stand for a state recorded elsewhere."""
    return {name: graph.input(f"{prefix}.{name}", n.shape, n.value_type) for name, n in state.items()}


def _prefixed(prefix: str, nodes: Mapping[str, Node]) -> dict[str, Node]:
    return {f"{prefix}.{name}": node for name, node in nodes.items()}


def _has(nodes: Mapping[str, Node], size: int) -> bool:
    return any(size in node.shape for node in nodes.values())


class OnnxModel:
    """The files that ``export_model`` wrote, run by onnxruntime; nothing of JAX is used.

    Needs the package onnxruntime: ``pip install 'mgraph[onnx]'``.
    """

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

    def encode(self, sources: Sequence[Source], steps: int, *, batch: int = 1) -> dict[str, np.ndarray]:
        """The encoder state and the first decoder state, by the names of their outputs.

        ``sources`` are the ids and the mask of each source stream; where there is none, ``batch`` says for
        how many sentences the states are. ``ArgumentError`` for another number of sources.
        """
        if len(sources) != self.sources:
            raise ArgumentError(f"these files are of a model of {self.sources} sources, got {len(sources)}")
        inputs = {BATCH: np.array(batch, np.int64), STEPS: np.array(steps, np.int64)}
        for name, (ids, mask) in zip(_source_names(self.sources), sources, strict=True):
            inputs |= {f"{name}_ids": ids, f"{name}_mask": mask}
        found = _run(self.encoder, {name: inputs[name] for name in self._taken})
        return {**found, BATCH: inputs[BATCH]} if BATCH in self._needed else found

    def step(self, state: Mapping[str, Any], words: np.ndarray, position: int) -> dict[str, np.ndarray]:
        """``logits`` and the decoder state for the next step, under the names of the decoder's inputs."""
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
        """The most likely next word, again and again, until ``</s>``, which is included.

        ``sources`` are word ids that end in ``</s>``, translated as one batch by files of beam 1 and of a
        model of one source; a sentence of n words gets at most ``max_length_factor * n``, one without words
        becomes ``</s>``. Words in ``suppressed`` are never chosen.
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
