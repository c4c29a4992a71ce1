"""Lines of text as sentences of word ids."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.settings import OptionError
from nmt.text.lines import as_bytes, is_utf8, tab_fields
from nmt.text.parallel import Fields, Row
from nmt.text.report import EpochReport
from nmt.text.vocabs.base import Vocab, VocabError, as_text
from nmt.text.vocabs.sentence_piece import SegmentedVocab, SentencePieceVocab

TOO_LONG = "with more words than --max-length"
NO_WORDS = "without a word"
NO_LABEL = "with a label that the classes do not have"
BAD_FIELDS = "with too many fields"
BAD_ALIGNMENT = "with a bad word alignment"
BAD_WEIGHTS = "with bad weights"
NOT_UTF8 = "lines that are not valid UTF-8 (such words are unknown)"
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One input line, or one line of each input, as word ids.

    line: its number, from 0.
    sequences: word ids of each stream (source; or source and target), ``</s>`` included.
    problem: why the line is not to be computed, or empty. Such a sample joins no batch.
    """

    line: int
    sequences: tuple[list[int], ...]
    problem: str = ""


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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Turns lines into samples, and warns of a line that cannot be taken as it is.

    vocabs: one vocabulary for each stream.
    max_length: the longest sequence in words, ``</s>`` counted; a longer line is a problem, or
        with ``max_length_crop`` is cut, keeping ``</s>``.
    right_left: the words of every stream are reversed, but ``</s>`` (Marian's ``--right-left``).
    tsv: a line holds all streams, a tab between them (``--tsv``). Streams that are not there are
        empty, as in Marian; a line with too many is a problem.
    """

    vocabs: Sequence[Vocab]
    max_length: int
    max_length_crop: bool
    right_left: bool = False
    tsv: bool = False

    def sample(self, number: int, lines: Sequence[bytes]) -> Sample:
        """The sample of line ``number`` (from 0), given its bytes in each stream; one line with ``tsv``."""
        if self.tsv:
            (line,) = lines
            needed = len(self.vocabs)
            lines = tab_fields(line, needed)
            if len(lines) > needed:
                return _left_out(number, (), f"{len(lines)} fields separated by tabs, {needed} are expected")
        sequences, problems = [], []
        for line, vocab in zip(lines, self.vocabs, strict=True):
            if not is_utf8(line):
                logger.warning("line %d is not valid UTF-8: such words are unknown", number + 1)
            try:
                words = vocab.encode(line)
            except VocabError as error:  # a label that a class vocabulary does not have
                words = []
                problems.append(str(error))
            if self.max_length_crop:
                words = cropped(words, vocab, self.max_length)
            if len(words) > self.max_length:
                problems.append(f"{len(words)} words with </s>, --max-length is {self.max_length}")
            sequences.append(reversed_words(words) if self.right_left else words)
        if problems:
            return _left_out(number, tuple(sequences), "; ".join(problems))
        return Sample(number, tuple(sequences))


def cropped(words: list[int], vocab: Vocab, most: int) -> list[int]:
    """The first ``most`` of the words, the last of them ``</s>`` (``--max-length-crop``)."""
    if len(words) > most:
        words = words[:most]
        if vocab.eos_id >= 0:
            words[-1] = vocab.eos_id
    return words


def reversed_words(words: list[int]) -> list[int]:
    """The words from last to first, but for ``</s>`` (``--right-left``)."""
    return [*words[-2::-1], *words[-1:]]


def _left_out(number: int, sequences: tuple[list[int], ...], problem: str) -> Sample:
    logger.warning("line %d is left out: %s", number + 1, problem)
    return Sample(number, sequences, problem)


Links = list[tuple[int, int]]
"""Pairs of positions in the source and in the target."""


@dataclass(slots=True)
class Sentence:
    """A sentence pair: word ids of each stream, ``</s>`` included.

    number: of its row, from 0. alignment: its links. weights: of the target words, from the first one on.
    """

    number: int
    streams: tuple[list[int], ...]
    alignment: Links | None = None
    weights: list[float] | None = None


_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_BEFORE_WORDS = " \"'-"
_SMALL_WORDS = frozenset(
    "a after against and any as at be because between by during for from his in is its last not of off on "
    "than the their this to was were which will with".split()
)


class Casing:
    """Changes the case of every n-th line, counted from 0 in the files.

    all_caps_every: n for capitals, in all streams; 0 for never.
    title_every: n for English title case, in the first source, from the second line on; 0 for never.

    As in Marian, text is changed only where a SentencePiece model splits it: other vocabularies could not
    know the words. Source: ``--all-caps-every``, ``--english-title-case-every``. Every letter that Unicode
    gives a single capital gets it; Marian's own list lacks some.
    """

    def __init__(self, vocabs: Sequence[Vocab], all_caps_every: int = 0, title_every: int = 0) -> None:
        self._splits = [isinstance(vocab, SentencePieceVocab | SegmentedVocab) for vocab in vocabs]
        self._caps, self._title = all_caps_every, title_every

    def alter(self, number: int, lines: list[str | bytes]) -> bool:
        """Change the lines of row ``number`` in place if it is their turn; whether it was."""
        if self._caps and number % self._caps == 0:
            for stream, line in enumerate(lines):
                if self._splits[stream]:
                    lines[stream] = as_bytes(in_capitals(as_text(line)))
            return True
        if self._title and number % self._title == 1:
            if self._splits[0]:
                lines[0] = as_bytes(in_title_case(as_text(lines[0])))
            return True
        return False


def in_capitals(text: str) -> str:
    """``text`` with a capital for each letter that has one."""
    capitals = text.upper()
    if len(capitals) == len(text):
        return capitals
    return "".join(upper if len(upper := letter.upper()) == 1 else letter for letter in text)


def in_title_case(text: str) -> str:
    """``text`` with a capital at each English word, but for small ones (``of``, ``the``)."""

    def capital(match: re.Match[str]) -> str:
        word, start = match[0], match.start()
        if word in _SMALL_WORDS or (start and text[start - 1] not in _BEFORE_WORDS):
            return word
        return word[0].upper() + word[1:]

    return _WORD.sub(capital, text)
