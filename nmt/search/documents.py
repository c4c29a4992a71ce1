"""``translate_documents``: sentences in the context of their documents."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.search.translator import Translator
from nmt.settings import OptionError, whole_number
from nmt.text.lines import as_bytes, require_items, without_end
from nmt.text.vocabs.base import Vocab, as_text

logger = logging.getLogger(__name__)


@dataclass
class _Part:
    """Neighboring sentences of a document, which are translated as one line.

    document: its number. first: the number of the first sentence.
    """

    document: int
    first: int
    sentences: list[str] = field(default_factory=list)


def translate_documents(
    translator: Translator,
    documents: Iterable[Sequence[str | bytes]],
    *,
    separator: str = "",
    most_words: int = 0,
) -> list[list[str]]:
    """Translate documents, given as lists of sentences; returns a list of as many translations for each.

    For models that were trained on lines of several sentences with a separator between them. As many
    sentences as fit are joined to a line and translated together, so that the model sees each in the context
    of its neighbors; translations are split at the separators. If a translation has the wrong number of
    separators, the sentences of its line are translated one by one, and the log says how many.

    translator: of a model with one source. separator: a word of both vocabularies; by default the model's
        (Marian's ``--separator-symbol``, ``[eos]``). most_words: the most words of a line, or pieces of the
        vocabulary, ``</s>`` included; 0 for the translator's ``max_length``.

    Raises OptionError for what is no translator, a separator that a vocabulary does not have or splits, a
    model with several sources, and ``most_words`` below 0; ArgumentError for a document that is not split
    into sentences.
    """
    if not isinstance(translator, Translator):
        raise OptionError(f"translator must be a Translator, got {translator!r:.80}")
    whole_number("most_words", most_words)
    if len(translator.names) != 1:
        raise OptionError(f"documents have one text, the models need {', '.join(translator.names)}")
    separator = separator or str(translator.models[0].options.separator_symbol)
    source = translator.source_vocabs[0]
    for vocab in source, translator.target_vocab:
        if vocab[separator] == vocab.unk_id:
            raise OptionError(f"the separator {separator!r} is not a word of {vocab!r}")
        if vocab[separator] not in vocab.encode(separator, add_eos=False):
            raise OptionError(
                f"the separator {separator!r} in a text is not read as one word by {vocab!r}; a "
                "SentencePiece model needs it as a user-defined symbol"
            )
    limit = most_words or translator.options.max_length
    texts = []
    for sentences in documents:
        require_items("a document is a list of sentences", sentences)
        texts.append([as_text(without_end(as_bytes(line))) for line in sentences])
    between, separators = f" {separator} ", _as_word(separator)
    parts = list(_parts(texts, between, source, limit))
    lines = [between.join(part.sentences) for part in parts]
    found = [["" for _ in document] for document in texts]
    alone: list[tuple[int, int]] = []
    for part, translation in zip(parts, _texts(translator, lines), strict=True):
        pieces = [piece.strip() for piece in separators.split(translation)]
        if len(part.sentences) == 1:
            pieces = [" ".join(filter(None, pieces))]
        count = len(part.sentences)
        if len(pieces) == count:
            found[part.document][part.first : part.first + count] = pieces
        else:
            alone += ((part.document, part.first + k) for k in range(count))
    if alone:
        logger.warning("%d sentence(s) are translated one by one: separators are missing", len(alone))
        again = [texts[document][number] for document, number in alone]
        for (document, number), translation in zip(alone, _texts(translator, again), strict=True):
            found[document][number] = " ".join(separators.sub(" ", translation).split())
    return found


def _as_word(separator: str) -> re.Pattern[str]:
    """A separator in a translation. One such as ``eos`` is not a part of a word such as ``videos``; around
    others there may be no spaces."""
    first, last = (r"\b" if re.match(r"\w", end) else "" for end in (separator[0], separator[-1]))
    return re.compile(first + re.escape(separator) + last)


def _parts(documents: Iterable[Sequence[str]], between: str, vocab: Vocab, limit: int) -> Iterator[_Part]:
    """The sentences of each document, joined while the words of the line fit."""
    for number, document in enumerate(documents):
        part = _Part(number, 0)
        for place, sentence in enumerate(document):
            # SentencePiece may split the spaces around a separator off, so only the whole line tells.
            line = between.join([*part.sentences, sentence])
            if part.sentences and len(vocab.encode(line)) > limit:
                yield part
                part = _Part(number, place)
            part.sentences.append(sentence)
        if part.sentences:
            yield part


def _texts(translator: Translator, lines: Sequence[str]) -> list[str]:
    return [found.text for found in translator.translate(lines, return_scores=True)]
