"""Translation by CTranslate2, a peer: a process of its own, of a Python that has it.

Run by that Python as a script it is the process: it reads requests from its standard input, one a line,
and answers each with a line of JSON. With arguments (model, folder, vocabularies) it converts the model.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any


class CTranslate2Error(Exception):
    """CTranslate2 failed."""


CONFIGURATION = "special:model.yml"
CONVERTED = "converted"
TABLES = (("encoder_Wemb", "Wemb"), ("decoder_Wemb", "Wemb"))
"""Names that the embeddings of source and target may have."""


class CTranslate2Decoder:
    """A Marian model as CTranslate2 decodes with it, in float32. To be used in a ``with`` statement.

    python: of an environment with the package ``ctranslate2``. model, vocabs: paths of Marian's files (a
    transformer; vocabularies in YAML). workers, threads: so many batches at once (``inter_threads``), each
    by so many threads (``intra_threads``).
    """

    def __init__(self, python: str, model: str, vocabs: Sequence[str], workers: int, threads: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        request = {
            "model": model,
            "vocabs": list(vocabs),
            "folder": self.folder.name,
            "workers": workers,
            "threads": threads,
        }
        self.process = subprocess.Popen(
            [python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._ask(request)

    def decode(
        self, lines: Sequence[str], batch: int, beam: int, normalize: float, *, bounded: bool = False
    ) -> tuple[float, list[str]]:
        """Seconds of translating and the translations; batches of sentences of like length.

        ``bounded``: a translation is no longer than the longest source of its batch, ``</s>`` counted.
        """
        request = {"lines": list(lines), "batch": batch, "beam": beam, "normalize": normalize}
        if not bounded:
            answer = self._ask(request)
            return answer["seconds"], answer["lines"]
        seconds, found = 0.0, [""] * len(lines)
        order = sorted(range(len(lines)), key=lambda line: -len(lines[line].split()))
        batches = [order[first : first + batch] for first in range(0, len(order), batch)]
        # One request for all batches of one bound, so that several workers have batches to share.
        for longest, group in groupby(batches, key=lambda chosen: len(lines[chosen[0]].split()) + 1):
            chosen = [line for part in group for line in part]
            answer = self._ask({**request, "lines": [lines[line] for line in chosen], "longest": longest})
            seconds += answer["seconds"]
            for line, text in zip(chosen, answer["lines"], strict=True):
                found[line] = text
        return seconds, found

    def _ask(self, request: dict[str, Any]) -> Any:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise CTranslate2Error("CTranslate2 failed; its message is above")
        return json.loads(answer)

    def __enter__(self) -> CTranslate2Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def convert(model: str, vocabs: Sequence[str], folder: str) -> None:
    """Write the model in CTranslate2's format, to the folder ``CONVERTED`` within ``folder``.

    The converter takes one byte after the configuration for its end; Marian 1.12 writes several.
    """
    import numpy as np

    converters = import_module("ctranslate2.converters")
    with np.load(model) as items:
        arrays = dict(items)
    text = arrays[CONFIGURATION].tobytes().rstrip(b"\0") + b"\0"
    arrays[CONFIGURATION] = np.frombuffer(text, np.int8)
    copy = Path(folder, "for-ctranslate2.npz")
    np.savez(copy, **arrays)
    sizes = [len(arrays[next(name for name in names if name in arrays)]) for names in TABLES]
    cut = [_cut(vocab, size, folder) for vocab, size in zip(vocabs, sizes, strict=True)]
    converters.MarianConverter(str(copy), cut).convert(str(Path(folder, CONVERTED)))


def _cut(vocab: str, size: int, folder: str) -> str:
    """The path of a vocabulary in YAML without the words that a model has no room for, as Marian reads it."""
    lines = Path(vocab).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if int(line.rpartition(":")[2]) < size]
    if len(kept) == len(lines):
        return vocab
    path = Path(folder, f"{size}.{Path(vocab).name}")
    path.write_text("".join(kept), encoding="utf-8")
    return str(path)


def serve() -> None:
    """Answer the requests of a ``CTranslate2Decoder``."""
    ctranslate2 = import_module("ctranslate2")

    def answer(content: Any) -> None:
        print(json.dumps(content), flush=True)

    first = json.loads(sys.stdin.readline())
    converter = [sys.executable, __file__, first["model"], first["folder"], *first["vocabs"]]
    subprocess.run(converter, check=True)  # in a process of its own, so that its memory is gone
    translator = ctranslate2.Translator(
        str(Path(first["folder"], CONVERTED)),
        device="cpu",
        compute_type="float32",
        inter_threads=first["workers"],
        intra_threads=first["threads"],
    )
    answer({})
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        found = translator.translate_batch(
            [text.split() for text in request["lines"]],
            max_batch_size=request["batch"],
            beam_size=request["beam"],
            length_penalty=request["normalize"],
            max_decoding_length=request.get("longest", 1000),
            disable_unk=True,
        )
        lines = [" ".join(result.hypotheses[0]) for result in found]
        answer({"seconds": time.perf_counter() - start, "lines": lines})


if __name__ == "__main__":
    if sys.argv[1:]:
        convert(sys.argv[1], sys.argv[3:], sys.argv[2])
    else:
        serve()
