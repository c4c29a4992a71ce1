"""Rows of text as sentences of word ids, with their alignments and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.settings import OptionError
from nmt.text.corpus.casing import Casing
from nmt.text.corpus.fields import Fields
from nmt.text.corpus.report import EpochReport
from nmt.text.corpus.sentence import Links, Sentence
from nmt.text.corpus.text import Row
from nmt.text.lines import is_utf8, tab_fields
from nmt.text.samples import cropped, reversed_words
from nmt.text.vocabs.base import Vocab, VocabError

TOO_LONG = "with more words than --max-length"
NO_WORDS = "without a word"
NO_LABEL = "with a label that the classes do not have"
BAD_FIELDS = "with too many fields"
BAD_ALIGNMENT = "with a bad word alignment"
BAD_WEIGHTS = "with bad weights"
NOT_UTF8 = "lines that are not valid UTF-8 (such words are unknown)"
MASK = (1 << 64) - 1


class _LeftOut(Exception):
    """Why a row is not trained on."""


class SentenceReader:
    """Makes sentences of rows.

    vocabs: of each stream. alphas: for each stream how freely pieces are sampled
        (``--sentencepiece-alphas``), 0 not at all. seed: of that.
    """

    def __init__(
        self,
        vocabs: Sequence[Vocab],
        fields: Fields,
        *,
        max_length: int,
        max_length_crop: bool = False,
        right_left: bool = False,
        sentence_weights: bool = True,
        alphas: Sequence[float] = (),
        casing: Casing | None = None,
        seed: int = 0,
    ) -> None:
        check_alphas(alphas, len(vocabs))
        for vocab, alpha in zip(vocabs, alphas, strict=False):
            vocab.sample("", alpha, seed)  # a model that cannot be sampled says so here, not in the thread
        self._vocabs, self._fields, self._casing = tuple(vocabs), fields, casing
        self._max_length, self._crop, self._right_left = max_length, max_length_crop, right_left
        self._sentence_weights = sentence_weights
        self._alphas = (*alphas, *[0.0] * (len(vocabs) - len(alphas)))
        self._seed = seed

    @classmethod
    def from_options(
        cls, values: Mapping[str, Any], vocabs: Sequence[Vocab], fields: Fields, seed: int
    ) -> SentenceReader:
        """A reader as Marian's options say."""
        every, title = values["all_caps_every"], values["english_title_case_every"]
        return cls(
            vocabs,
            fields,
            max_length=values["max_length"],
            max_length_crop=values["max_length_crop"],
            right_left=values["right_left"],
            sentence_weights=values["data_weighting_type"] == "sentence",
            alphas=values["sentencepiece_alphas"],
            casing=Casing(vocabs, every, title) if every or title else None,
            seed=seed,
        )

    def read(self, number: int, row: Row, epoch: int, report: EpochReport) -> Sentence | None:
        """The sentence of row ``number``; None if it is left out, and why is counted in ``report``."""
        report.read += 1
        if not all(map(is_utf8, row)):
            report.remarks[NOT_UTF8] += 1
        try:
            return self._sentence(number, row, epoch)
        except _LeftOut as reason:
            report.left_out[str(reason)] += 1
            return None

    def _sentence(self, number: int, row: Row, epoch: int) -> Sentence:
        fields = self._fields
        texts = tab_fields(row[0], fields.number) if fields.tsv else row
        if len(texts) > fields.number:
            raise _LeftOut(BAD_FIELDS)
        lines: list[str | bytes] = [texts[place] for place in fields.sentences]
        altered = self._casing is not None and self._casing.alter(number, lines)
        streams = tuple([self._words(stream, line, number, epoch) for stream, line in enumerate(lines)])
        alignment = weights = None
        if fields.alignment is not None:
            # The links are not those of text that was altered: Marian takes none then, not even that of </s>.
            alignment = [] if altered else self._links(texts[fields.alignment], streams)
        if fields.weights is not None:
            weights = self._weights(texts[fields.weights], len(streams[-1]))
        return Sentence(number, streams, alignment, weights)

    def _words(self, stream: int, line: str | bytes, number: int, epoch: int) -> list[int]:
        vocab, alpha = self._vocabs[stream], self._alphas[stream]
        try:
            if alpha:
                words = vocab.sample(line, alpha, _seed(self._seed, epoch, number, stream))
            else:
                words = vocab.encode(line)
        except VocabError:
            raise _LeftOut(NO_LABEL) from None
        if not words:
            raise _LeftOut(NO_WORDS)
        if self._crop:
            words = cropped(words, vocab, self._max_length)
        if len(words) > self._max_length:
            raise _LeftOut(TOO_LONG)
        return reversed_words(words) if self._right_left else words

    def _links(self, text: bytes, streams: Sequence[Sequence[int]]) -> Links:
        """The links of ``0-0 1-2``, and that of both ``</s>``, which Marian adds."""
        numbers = text.replace(b"-", b" ").split()
        if len(numbers) % 2 or not all(map(bytes.isdigit, numbers)):
            raise _LeftOut(BAD_ALIGNMENT)
        places = list(map(int, numbers))
        source, target = (len(words) for words in streams)
        links = list(zip(places[::2], places[1::2], strict=True))
        inside = [link for link in links if link[0] < source and link[1] < target]
        if len(inside) < len(links) and not self._crop:
            raise _LeftOut(BAD_ALIGNMENT)
        return [*inside, (source - 1, target - 1)]

    def _weights(self, text: bytes, words: int) -> list[float]:
        try:
            weights = list(map(float, text.split()))
        except ValueError:
            raise _LeftOut(BAD_WEIGHTS) from None
        if self._crop:
            weights = weights[:words]
        # A line without words has none of words either.
        enough = bool(weights) or (words == 1 and not self._sentence_weights)
        if not enough or len(weights) > words or not all(map(math.isfinite, weights)):
            raise _LeftOut(BAD_WEIGHTS)
        if self._sentence_weights:
            return weights[:1] * words
        return weights[::-1] if self._right_left else weights


def _seed(*numbers: int) -> int:
    """A number of 64 bits from others, such that near ones give far ones (Steele et al. 2014, SplitMix)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ number) + 0x9E3779B97F4A7C15 & MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
        mixed ^= mixed >> 31
    return mixed


def check_alphas(alphas: Sequence[float], streams: int) -> None:
    """OptionError for more numbers than there are streams of text."""
    if len(alphas) > streams:
        raise OptionError(f"--sentencepiece-alphas: one for each of {streams} streams, got {len(alphas)}")
