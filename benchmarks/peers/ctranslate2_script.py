"""The script that a Python with CTranslate2 runs, with a JSON object as its argument.

``action`` is ``convert``: ``model``, ``vocabs``, ``folder`` to write to, ``precision``; or ``job``: a file
translated as ``mgraph decode`` would, ``input``, ``output``, ``batch``, ``beam`` and ``normalize``; or
``serve``: questions are read from standard input and answered, as ``benchmarks.measuring.answering`` does.
The last two take ``folder``, ``precision``, ``workers`` and ``threads``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

CONFIGURATION = "special:model.yml"
TABLES = (("encoder_Wemb", "Wemb"), ("decoder_Wemb", "Wemb"))
"""Names that the embeddings of source and target may have."""


def convert(model: str, vocabs: Sequence[str], folder: str, precision: str) -> None:
    """Write the model in CTranslate2's format.

    The converter expects a single zero byte after the configuration; Marian 1.12 writes several.
    """
    import numpy as np

    converters = import_module("ctranslate2.converters")
    with np.load(model) as items:
        arrays = dict(items)
    text = arrays[CONFIGURATION].tobytes().rstrip(b"\0") + b"\0"
    arrays[CONFIGURATION] = np.frombuffer(text, np.int8)
    copy = Path(f"{folder}.npz")
    np.savez(copy, **arrays)
    sizes = [len(arrays[next(name for name in names if name in arrays)]) for names in TABLES]
    cut = [_cut(vocab, size, folder) for vocab, size in zip(vocabs, sizes, strict=True)]
    converters.MarianConverter(str(copy), cut).convert(folder, quantization=precision)
    copy.unlink()


def _cut(vocab: str, size: int, folder: str) -> str:
    """The path of a vocabulary in YAML without the words that a model has no room for, as Marian reads it."""
    lines = Path(vocab).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if int(line.rpartition(":")[2]) < size]
    if len(kept) == len(lines):
        return vocab
    path = Path(f"{folder}.{size}.{Path(vocab).name}")
    path.write_text("".join(kept), encoding="utf-8")
    return str(path)


class Translating:
    """A model, loaded."""

    def __init__(self, folder: str, precision: str, workers: int, threads: int) -> None:
        self._translator = import_module("ctranslate2").Translator(
            folder, device="cpu", compute_type=precision, inter_threads=workers, intra_threads=threads
        )

    def translate(
        self, lines: Sequence[str], batch: int, beam: int, normalize: float, longest: int = 1000
    ) -> list[str]:
        """Translations, made in batches of lines of similar length; ``longest`` bounds their words."""
        found = self._translator.translate_batch(
            [line.split() for line in lines],
            max_batch_size=batch,
            beam_size=beam,
            length_penalty=normalize,
            max_decoding_length=longest,
            disable_unk=True,
        )
        return [" ".join(result.hypotheses[0]) for result in found]

    def decode(self, lines: Sequence[str], **options: Any) -> dict[str, Any]:
        """Seconds, and the translations."""
        start = time.perf_counter()
        found = self.translate(lines, **options)
        return {"seconds": time.perf_counter() - start, "lines": found}

    def latency(self, lines: Sequence[str], **options: Any) -> dict[str, Any]:
        """Seconds of each line, translated by itself."""
        return {"seconds": [self.decode([line], **options)["seconds"] for line in lines]}


def job(model: Translating, given: Mapping[str, Any]) -> None:
    """Translate a file."""
    with open(given["input"], encoding="utf-8") as source:
        lines = [line.rstrip("\n") for line in source]
    found = model.translate(lines, given["batch"], given["beam"], given["normalize"])
    with open(given["output"], "w", encoding="utf-8") as target:
        target.writelines(f"{line}\n" for line in found)


def serve(model: Translating) -> None:
    """Answer questions until there are no more."""
    for line in sys.stdin:
        details = json.loads(line)
        question = details.pop("question")
        print(json.dumps(getattr(model, question)(**details)), flush=True)


def main() -> None:
    given = json.loads(sys.argv[1])
    if given["action"] == "convert":
        try:
            convert(given["model"], given["vocabs"], given["folder"], given["precision"])
        except ValueError as error:  # the model has what CTranslate2 lacks
            sys.exit(f"error: {' '.join(str(error).split())}")
        return
    model = Translating(given["folder"], given["precision"], given["workers"], given["threads"])
    if given["action"] == "job":
        job(model, given)
    else:
        serve(model)


if __name__ == "__main__":
    main()
