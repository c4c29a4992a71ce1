"""The SentencePiece vocabulary of the task, with Marian's ids."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import sentencepiece

SIZE = 200


def train(texts: Sequence[Path], output: Path, size: int = SIZE) -> None:
    """Train one vocabulary on all lines of ``texts`` and write it to ``output``.

    The pieces are found by byte-pair encoding, which cuts German numbers near their morphemes.
    Text is case-folded. As Marian expects, ``</s>`` has id 0, ``<unk>`` id 1 and there is no ``<s>``.
    The same texts and size give the same pieces.

    Raises OSError for an unreadable or unwritable file and ValueError for a size that the texts
    do not allow.
    """
    lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
    model = BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            normalization_rule_name="nmt_nfkc_cf",
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"cannot train a vocabulary of {size} pieces: {error}") from None
    output.write_bytes(model.getvalue())
