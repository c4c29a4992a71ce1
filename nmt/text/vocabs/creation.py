"""New vocabularies from text: words by frequency, or pieces learned by SentencePiece."""

from __future__ import annotations

import io
import logging
import os
import random
import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any

from mgraph.files.items import replacing
from nmt.settings import OptionError
from nmt.settings.training import Files
from nmt.text.lines import as_bytes, require_items

from .base import EOS_WORD, UNK_WORD, VocabError
from .yaml_words import YAML_ENDINGS, word_ids_yaml

logger = logging.getLogger(__name__)

DEFAULT_PIECES = 32000
MAX_LINE = 2048  # bytes; SentencePiece skips longer lines, as in Marian
SPECIAL_IDS = {"bos_id": "-1", "eos_id": "0", "unk_id": "1"}
QUIET = {"minloglevel": "1"}
FILES = ("input", "model_prefix", "sentence_iterator", "model_writer")


class NewVocabError(OptionError, VocabError):
    """The name of a new vocabulary, or an option for its pieces, is invalid."""


def counted_words(lines: Iterable[bytes]) -> list[bytes]:
    """The words of ``lines``, most frequent first, equally frequent ones in byte order.

    Only U+0020 separates words, and only a line feed ends a line. A carriage return before it becomes part of
    the last word, as in Marian, although texts are read without it: a warning says so.
    """
    counts: Counter[bytes] = Counter()
    returns = 0
    for line in lines:
        counts.update(word for word in line.removesuffix(b"\n").split(b" ") if word)
        returns += line.endswith(b"\r\n")
    if returns:
        logger.warning(
            "%d lines end in CR LF: their last words enter the vocabulary with the CR, as in Marian, but "
            "texts are read without it, so that these words may be unknown; remove the CRs from the text",
            returns,
        )
    return sorted(counts, key=lambda word: (-counts[word], word))


def word_vocab(lines: Iterable[bytes], max_size: int = 0) -> bytes:
    """A vocabulary of words as YAML, byte for byte as ``marian-vocab`` prints it.

    ``</s>`` is 0, ``<unk>`` is 1, then come the words of ``counted_words``. A word ``</s>`` or ``<unk>`` of
    the text is written again; the first one counts when the file is read.

    max_size: the number of ids; the rarest words are left out. 0 and 1 mean no limit, as in Marian.
    """
    words = counted_words(lines)
    if max_size > 1:
        words = words[: max_size - 2]
    return word_ids_yaml([EOS_WORD.encode(), UNK_WORD.encode(), *words])


def class_vocab(lines: Iterable[bytes], path: str, max_size: int = 0) -> bytes:
    """A vocabulary of class labels, without special words. VocabError unless there are ``max_size`` labels;
    0 allows any number."""
    words = counted_words(lines)
    if max_size and len(words) != max_size:
        raise VocabError(f"{path}: {len(words)} classes in the text, expected {max_size} (dim-vocabs)")
    return word_ids_yaml(words)


def piece_vocab(
    lines: Iterable[bytes],
    path: str,
    max_size: int = 0,
    *,
    options: str = "",
    max_lines: int = Files.sentencepiece_max_lines,
    seed: int = 1,
) -> bytes:
    """A serialized SentencePiece model with ``</s>`` as 0, ``<unk>`` as 1, learned from ``lines``.

    path: for messages. max_size: how many pieces; 0 for 32000.
    options: more options of ``spm_train`` (``--sentencepiece-options``), such as ``--byte_fallback=true``.
    max_lines: the largest random sample of lines to learn from (``--sentencepiece-max-lines``); 0 for all.
        Empty lines and lines of 2048 bytes or more are skipped.
    seed: for the sample.

    The installed SentencePiece learns other pieces than the older version built into Marian. Raises
    VocabError with SentencePiece's message.
    """
    from sentencepiece import SentencePieceTrainer

    text = _sample((line.removesuffix(b"\n") for line in lines), max_lines, seed)
    arguments: dict[str, Any] = {
        **SPECIAL_IDS,
        "vocab_size": max_size or DEFAULT_PIECES,
        "max_sentence_length": MAX_LINE,
        **QUIET,
        **_trainer_options(options, path),
    }
    model = io.BytesIO()
    logger.info("%s: learning %s pieces from %d lines", path, arguments["vocab_size"], len(text))
    try:
        SentencePieceTrainer.Train(sentence_iterator=iter(text), model_writer=model, **arguments)
    except (RuntimeError, ValueError, OSError) as error:
        raise VocabError(
            f"{path}: SentencePiece learns no pieces from these {len(text)} lines: {error}"
        ) from None
    return model.getvalue()


def create_vocab(
    path: str | os.PathLike[str],
    lines: Iterable[str | bytes],
    max_size: int = 0,
    *,
    input_type: str = "sequence",
    options: str = "",
    max_lines: int = Files.sentencepiece_max_lines,
    seed: int = 1,
) -> None:
    """Create the vocabulary ``path`` from ``lines``: pieces if it ends in ``.spm``, else words in YAML.

    Writes the whole file or nothing, and never overwrites a file.
    input_type: ``class`` for labels without special words. Other arguments: see ``piece_vocab``.

    Raises VocabError if the file exists, or if the text does not give the vocabulary asked for (see
    ``class_vocab`` and ``piece_vocab``); NewVocabError if the file has the wrong ending or ``options`` are
    invalid; ArgumentError for ``lines`` that are not lines.
    """
    name = os.fspath(path)
    _require_none(name)
    check_new_vocab(name, options)
    require_items("a text is a list, a file or another iterable of lines", lines)
    text = (as_bytes(line) for line in lines)
    if name.endswith(".spm"):
        data = piece_vocab(text, name, max_size, options=options, max_lines=max_lines, seed=seed)
    elif input_type == "class":
        data = class_vocab(text, name, max_size)
    else:
        data = word_vocab(text, max_size)
    _require_none(name)  # again: another process may have made the file while the text was read
    with replacing(name) as stream:
        stream.write(data)


def _require_none(path: str) -> None:
    if os.path.exists(path):
        raise VocabError(f"{path}: exists; a vocabulary is never overwritten")


def check_new_vocab(path: str, options: str = "") -> None:
    """NewVocabError for an invalid file name or invalid SentencePiece options."""
    if not path.endswith((".spm", *YAML_ENDINGS)):
        raise NewVocabError(f"{path}: a new vocabulary is .yml, .yaml, .json (words) or .spm (pieces)")
    if path.endswith(".spm"):
        _trainer_options(options, path)


def _sample(lines: Iterable[bytes], size: int, seed: int) -> list[bytes]:
    """A uniform sample of ``size`` lines (Vitter's algorithm R); 0 for all of them."""
    sample: list[bytes] = []
    seen = 0
    dice = random.Random(seed)
    for line in lines:
        if not 0 < len(line) < MAX_LINE:
            continue
        seen += 1
        if not size or len(sample) < size:
            sample.append(line)
        elif (place := dice.randrange(seen)) < size:
            sample[place] = line
    return sample


def _trainer_options(options: str, path: str) -> dict[str, str]:
    """``--name=value`` options as a dictionary; without a value they are true."""
    arguments = {}
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise NewVocabError(f"{path}: --sentencepiece-options: {error}: {options}") from None
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise NewVocabError(f"{path}: --sentencepiece-options takes --name=value options, got {word!r}")
        if name in SPECIAL_IDS:
            raise NewVocabError(
                f"{path}: --sentencepiece-options cannot set --{name}: Marian's ids are fixed"
            )
        if name in FILES:
            raise NewVocabError(
                f"{path}: --sentencepiece-options cannot set --{name}: the text and the file are given"
            )
        arguments[name] = value if equals else "true"
    return arguments
