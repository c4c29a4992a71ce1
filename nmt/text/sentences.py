"""Lines of text as sentences of word ids."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt.settings import OptionError
from nmt.settings.training import TrainOptions
from nmt.text.letters import in_capitals
from nmt.text.lines import as_bytes, is_utf8
from nmt.text.parallel import Fields, Row
from nmt.text.vocabs.base import Vocab, VocabError, as_text
from nmt.text.vocabs.sentence_piece import SegmentedVocab, SentencePieceVocab

logger = logging.getLogger(__name__)

TOO_LONG = "with more words than --max-length"
NO_WORDS = "without a word"
NO_LABEL = "with a label that the classes do not have"
BAD_FIELDS = "with too many fields"
BAD_ALIGNMENT = "with a bad word alignment"
BAD_WEIGHTS = "with bad weights"
REASONS = ("", TOO_LONG, NO_WORDS, NO_LABEL, BAD_FIELDS, BAD_ALIGNMENT, BAD_WEIGHTS)
"""All values of ``Sentence.problem`` in training."""
MASK = (1 << 64) - 1

Links = list[tuple[int, int]]
"""Pairs of positions in the source and in the target."""


class Sentence(NamedTuple):
    """One input line, or one line of each input, as word ids.

    line: its number, from 0.
    sequences: word ids of each stream (source; or sources and target), ``</s>`` included; int32 arrays if
        several processes share the reading (``Share``).
    problem: why the line is left out, or empty. A sentence with a problem joins no batch.
    alignment: the links of its words. weights: those of the target words, in order; missing ones are 1.
    """

    line: int
    sequences: tuple[list[int], ...]
    problem: str = ""
    alignment: Links | None = None
    weights: list[float] | None = None

    @property
    def lacks_weights(self) -> bool:
        """Whether target words other than ``</s>`` lack a weight; a single weight is enough, as in Marian."""
        return self.weights is not None and 1 != len(self.weights) < len(self.sequences[-1]) - 1


class LeftOut(Exception):
    """A line is left out.

    reason: the kind of problem, for counting lines. detail: the problem of this line, for the log.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Turns lines into sentences.

    vocabs: one vocabulary for each stream.
    max_length: the most words in a sequence, ``</s>`` counted; a longer line is left out, or with
        ``max_length_crop`` cropped, keeping ``</s>``.
    right_left: reverse the words of every stream, except ``</s>`` (Marian's ``--right-left``).
    tsv: a line holds all streams, separated by tabs (``--tsv``). Missing streams are empty, as in Marian; a
        line with too many is left out.
    """

    vocabs: Sequence[Vocab]
    max_length: int
    max_length_crop: bool
    right_left: bool = False
    tsv: bool = False

    def sentence(self, line: int, texts: Sequence[bytes]) -> Sentence:
        """The sentence of ``line`` (from 0), given its bytes in each stream; one text with ``tsv``.

        Logs a warning for a line that is left out or not valid UTF-8.
        """
        sequences: list[list[int]] = []
        problems: list[str] = []
        try:
            streams = tab_fields(texts[0], len(self.vocabs)) if self.tsv else texts
        except LeftOut as problem:
            return _left_out(line, [problem.detail])
        for vocab, text in zip(self.vocabs, streams, strict=True):
            if not is_utf8(text):
                logger.warning("line %d is not valid UTF-8: such words are unknown", line + 1)
            try:
                sequences.append(self.words(vocab, text))
            except LeftOut as problem:
                problems.append(problem.detail)
        return _left_out(line, problems) if problems else Sentence(line, tuple(sequences))

    def words(self, vocab: Vocab, text: str | bytes, alpha: float = 0.0, seed: int = 0) -> list[int]:
        """The ids of a text; LeftOut if it is too long, or has a label missing from a class vocabulary.

        alpha, seed: see ``Vocab.sample``.
        """
        try:
            words = vocab.sample(text, alpha, seed) if alpha else vocab.encode(text)
        except VocabError as error:
            raise LeftOut(NO_LABEL, str(error)) from None
        if not words:
            raise LeftOut(NO_WORDS, "a label of a class is missing")
        if len(words) > self.max_length:
            if not self.max_length_crop:
                raise LeftOut(TOO_LONG, f"{len(words)} words with </s>, --max-length is {self.max_length}")
            words = words[: self.max_length]
            if vocab.eos_id >= 0:
                words[-1] = vocab.eos_id
        return [*words[-2::-1], *words[-1:]] if self.right_left else words


def tab_fields(line: bytes, number: int) -> list[bytes]:
    """The tab-separated fields of a line, padded with empty ones to ``number``, as in Marian (``--tsv``).
    LeftOut if there are more."""
    fields = line.split(b"\t")
    if len(fields) > number:
        raise LeftOut(BAD_FIELDS, f"{len(fields)} fields separated by tabs, {number} are expected")
    return [*fields, *[b""] * (number - len(fields))]


def _left_out(line: int, problems: list[str]) -> Sentence:
    problem = "; ".join(problems)
    logger.warning("line %d is left out: %s", line + 1, problem)
    return Sentence(line, (), problem)


class SentenceReader:
    """Turns rows of a corpus into sentences with alignments and weights.

    options: those of training. vocabs: one for each stream. fields: the layout of the rows. seed: for
    sampling segmentations (``--sentencepiece-alphas``).
    """

    def __init__(self, options: TrainOptions, vocabs: Sequence[Vocab], fields: Fields, seed: int) -> None:
        alphas = options.sentencepiece_alphas
        check_alphas(alphas, len(vocabs))
        for vocab, alpha in zip(vocabs, alphas, strict=False):
            vocab.sample("", alpha, seed)  # a model that cannot sample raises here, not in the thread
        self._encoder = LineEncoder(vocabs, options.max_length, options.max_length_crop, options.right_left)
        self._fields, self._seed = fields, seed
        self._casing = Casing(vocabs, options.all_caps_every, options.english_title_case_every)
        self._sentence_weights = options.data_weighting_type == "sentence"
        self._alphas = (*alphas, *[0.0] * (len(vocabs) - len(alphas)))

    def read(self, number: int, row: Row, epoch: int) -> Sentence:
        """The sentence of row ``number``; its problem is a ``LeftOut.reason``."""
        try:
            return self._sentence(number, row, epoch)
        except LeftOut as problem:
            return Sentence(number, (), problem.reason)

    def _sentence(self, number: int, row: Row, epoch: int) -> Sentence:
        fields = self._fields
        texts = tab_fields(row[0], fields.number) if fields.tsv else row
        lines: list[str | bytes] = [texts[place] for place in fields.sentences]
        altered = self._casing.alter(number, lines)
        sequences = tuple([self._words(stream, line, number, epoch) for stream, line in enumerate(lines)])
        alignment = weights = None
        if fields.alignment is not None:
            # Links do not fit text whose case was changed: Marian then uses none, not even the link of </s>.
            alignment = [] if altered else self._links(texts[fields.alignment], sequences)
        if fields.weights is not None:
            weights = self._weights(texts[fields.weights], len(sequences[-1]))
        return Sentence(number, sequences, "", alignment, weights)

    def _words(self, stream: int, line: str | bytes, number: int, epoch: int) -> list[int]:
        alpha = self._alphas[stream]
        seed = _seed(self._seed, epoch, number, stream) if alpha else 0
        return self._encoder.words(self._encoder.vocabs[stream], line, alpha, seed)

    def _links(self, text: bytes, sequences: Sequence[Sequence[int]]) -> Links:
        """The links in text like ``0-0 1-2``, plus the link of both ``</s>``, which Marian adds."""
        numbers = text.replace(b"-", b" ").split()
        if len(numbers) % 2 or not all(map(bytes.isdigit, numbers)):
            raise LeftOut(BAD_ALIGNMENT)
        places = list(map(int, numbers))
        source, target = (len(words) for words in sequences)
        links = list(zip(places[::2], places[1::2], strict=True))
        inside = [link for link in links if link[0] < source and link[1] < target]
        if len(inside) < len(links) and not self._encoder.max_length_crop:
            raise LeftOut(BAD_ALIGNMENT)
        return [*inside, (source - 1, target - 1)]

    def _weights(self, text: bytes, words: int) -> list[float]:
        """The weights of a target; cut only if it has ``max_length`` words, as a cropped target has."""
        try:
            weights = list(map(float, text.split()))
        except ValueError:
            raise LeftOut(BAD_WEIGHTS) from None
        if self._encoder.max_length_crop and words == self._encoder.max_length:
            weights = weights[:words]
        # An empty line has no word weights.
        enough = bool(weights) or (words == 1 and not self._sentence_weights)
        if not enough or len(weights) > words or not all(map(math.isfinite, weights)):
            raise LeftOut(BAD_WEIGHTS)
        if self._sentence_weights:
            return weights[:1] * words
        return weights[::-1] if self._encoder.right_left else weights


def _seed(*numbers: int) -> int:
    """Hash numbers to 64 bits (Steele et al. 2014, SplitMix)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ number) + 0x9E3779B97F4A7C15 & MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
        mixed ^= mixed >> 31
    return mixed


def check_alphas(alphas: Sequence[float], streams: int) -> None:
    """OptionError for more alphas than streams."""
    if len(alphas) > streams:
        raise OptionError(f"--sentencepiece-alphas: one for each of {streams} streams, got {len(alphas)}")


_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_BEFORE_WORDS = " \"'-"
_SMALL_WORDS = frozenset(
    "a after against and any as at be because between by during for from his in is its last not of off on "
    "than the their this to was were which will with".split()
)


class Casing:
    """Changes the case of every n-th line, counted from 0.

    all_caps_every: n for capitals, in all streams; 0 for never.
    title_every: n for English title case, in the first source, from the second line on; 0 for never.

    As in Marian, only text that a SentencePiece model splits is changed: other vocabularies would not know
    the words. Source: ``--all-caps-every``, ``--english-title-case-every``. Every letter with a single
    Unicode capital is capitalized; Marian's own list lacks some.
    """

    def __init__(self, vocabs: Sequence[Vocab], all_caps_every: int = 0, title_every: int = 0) -> None:
        self._splits = [isinstance(vocab, SentencePieceVocab | SegmentedVocab) for vocab in vocabs]
        self._caps, self._title = all_caps_every, title_every

    def alter(self, number: int, lines: list[str | bytes]) -> bool:
        """Change the lines of row ``number`` in place if an option applies to it; return whether one does."""
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


def in_title_case(text: str) -> str:
    """``text`` with each English word capitalized except small ones (``of``, ``the``)."""

    def capital(match: re.Match[str]) -> str:
        word, start = match[0], match.start()
        if word in _SMALL_WORDS or (start and text[start - 1] not in _BEFORE_WORDS):
            return word
        return word[0].upper() + word[1:]

    return _WORD.sub(capital, text)
