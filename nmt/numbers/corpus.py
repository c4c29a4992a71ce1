"""The parallel corpus: training and held-out numbers, lines, and vocabulary."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path

from nmt.numbers.words import check, english, german

DIGITS = range(1, 7)
Pair = tuple[int, str, str]
PIECES = 200
"""The size of the vocabulary."""
HELDOUT = 99_893
"""How many numbers are held out."""


def is_heldout(number: int) -> bool:
    """Say whether a number is held out of training.

    A number n > 0 is held out if the CRC-32 of its decimal digits is divisible by 10, about one
    in ten of every length. Zero is never held out: "zero" and "null" occur in no other number.
    """
    return check(number) > 0 and zlib.crc32(b"%d" % number) % 10 == 0


def _numbers(digits: int, held: bool) -> list[int]:
    """The numbers with ``digits`` digits that are held out, or not, in ascending order."""
    first = 10 ** (digits - 1) if digits > 1 else 0
    return [number for number in range(first, 10**digits) if is_heldout(number) == held]


def heldout(count: int, seed: int = 1) -> list[Pair]:
    """Draw ``count`` distinct held-out numbers as (number, English, German), in ascending order.

    The six lengths take turns until they are exhausted. The same seed gives the same numbers.

    Raises ValueError if ``count`` is negative or exceeds the number of held-out numbers.
    """
    piles = []
    for digits in DIGITS:
        pile = _numbers(digits, held=True)
        random.Random(f"{seed}/{digits}").shuffle(pile)
        piles.append(pile)
    if not 0 <= count <= HELDOUT:
        raise ValueError(f"expected a count from 0 to {HELDOUT}, got {count}")
    chosen: list[int] = []
    while len(chosen) < count:
        turn = [pile.pop() for pile in piles if pile]
        chosen += turn[: count - len(chosen)]
    return list(pairs(sorted(chosen)))


def training(count: int, seed: int = 1) -> list[Pair]:
    """Draw ``count`` training lines as (number, English, German), in random order.

    The six lengths get the same number of lines, give or take one, so that short numbers are learned, too.
    Numbers repeat only if a length has fewer numbers than lines. The same seed gives the same lines.

    Raises ValueError if ``count`` is negative.
    """
    if count < 0:
        raise ValueError(f"expected a count of at least 0, got {count}")
    generator = random.Random(seed)
    numbers: list[int] = []
    for digits in DIGITS:
        pile = _numbers(digits, held=False)
        generator.shuffle(pile)
        numbers += islice(cycle(pile), (count + len(DIGITS) - digits) // len(DIGITS))
    generator.shuffle(numbers)
    return list(pairs(numbers))


def pairs(numbers: Iterable[int]) -> Iterator[Pair]:
    """Yield (number, English, German) for each number."""
    for number in numbers:
        yield number, english(number), german(number)


def write(lines: Iterable[Pair], prefix: str | Path) -> tuple[Path, Path]:
    """Write PREFIX.en and PREFIX.de, one number a line in UTF-8, and return the two paths."""
    source, target = Path(f"{prefix}.en"), Path(f"{prefix}.de")
    triples = list(lines)
    for path, column in ((source, 1), (target, 2)):
        text = "".join(f"{triple[column]}\n" for triple in triples)
        path.write_text(text, encoding="utf-8", newline="\n")
    return source, target


def train_vocabulary(texts: Sequence[Path], output: Path, size: int = PIECES) -> None:
    """Train one SentencePiece vocabulary on all lines of ``texts`` and write it to ``output``.

    The pieces are found by byte-pair encoding, which cuts German numbers near their morphemes.
    Text is case-folded. As Marian expects, ``</s>`` has id 0, ``<unk>`` id 1 and there is no ``<s>``.
    The same texts and size give the same pieces.

    Raises OSError for an unreadable or unwritable file and ValueError for a size that the texts
    do not allow.
    """
    import sentencepiece

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
