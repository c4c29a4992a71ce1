"""The student as the files that Firefox's and Marian's decoders read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mgraph.files.intgemm import BERGAMOT
from nmt.files import convert_model

MODEL, LEXICON, CONFIG = "model.intgemm8.bin", "lex.s2t.bin", "config.yml"
GEMM_TYPES = {"marian": "intgemm8", "bergamot": BERGAMOT}
"""The ``gemm_type`` of the model in each folder: the two formats have different type codes for intgemm8."""

_CONFIG = """\
relative-paths: true
models:
  - {model}
vocabs:
  - {source}
  - {target}
shortlist:
  - {lexicon}
  - false
beam-size: 1
normalize: 1.0
word-penalty: 0
max-length-factor: 2.0
"""
_MORE = {
    "marian": """\
mini-batch: 64
maxi-batch: 100
maxi-batch-sort: src
""",
    "bergamot": """\
mini-batch-words: 1024
max-length-break: 128
workspace: 128
skip-cost: true
cpu-threads: 0
quiet: true
quiet-translation: true
gemm-precision: int8shift
""",
}
# `false`: Marian's check of a binary shortlist refuses some that Marian itself wrote.


def kinds_for(vocabs: Sequence[str]) -> list[str]:
    """The kinds of decoders that read these vocabularies: Bergamot reads SentencePiece models only."""
    pieces = all(path.endswith(".spm") for path in vocabs)
    return [kind for kind in GEMM_TYPES if kind != "bergamot" or pieces]


def write_files(folder: Path, kind: str, tuned: Path, lexicon: Path, vocabs: Sequence[str]) -> None:
    """Write the model in 8 bits, its vocabularies, its shortlist and ``config.yml`` to ``folder``.

    kind: the decoder that reads the files: ``marian``, or ``bergamot``, which is Firefox's.

    tuned: the fine-tuned student. Vocabularies are called ``vocab``, or ``srcvocab`` and ``trgvocab`` if
    there are two, with their original endings. Such a model makes Marian multiply integers; for mgraph add
    ``precision="int8"``.
    """
    folder.mkdir(exist_ok=True)
    convert_model(tuned, folder / MODEL, gemm_type=GEMM_TYPES[kind])
    shutil.copyfile(lexicon, folder / LEXICON)
    shared = os.path.samefile(vocabs[0], vocabs[-1])
    names = [
        f"{kind}{''.join(Path(path).suffixes[-1:])}"
        for kind, path in zip(("vocab", "vocab") if shared else ("srcvocab", "trgvocab"), vocabs, strict=True)
    ]
    for name, path in zip(names, vocabs, strict=True):
        shutil.copyfile(path, folder / name)
    source, target = names
    config = _CONFIG.format(model=MODEL, source=source, target=target, lexicon=LEXICON)
    (folder / CONFIG).write_text(config + _MORE[kind], encoding="utf-8")
