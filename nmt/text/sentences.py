"""Lines of text as sentences of word ids: for translating and scoring, and for training."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt.settings import OptionError
from nmt.settings.training import TrainOptions
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
MASK = (1 << 64) - 1

Links = list[tuple[int, int]]
"""Pairs of positions in the source and in the target."""


class Sentence(NamedTuple):
    """One input line, or one line of each input, as word ids.

    line: its number, from 0.
    sequences: word ids of each stream (source; or sources and target), ``</s>`` included.
    problem: why the line is not to be computed, or empty. Such a sentence joins no batch.
    alignment: the links of its words. weights: of the target words, from the first one on.
    """

    line: int
    sequences: tuple[list[int], ...]
    problem: str = ""
    alignment: Links | None = None
    weights: list[float] | None = None


class LeftOut(Exception):
    """Why a line is not to be computed.

    reason: the same for all such lines, to be counted. detail: of this line, to be logged.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Turns lines into sentences.

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

    def sentence(self, line: int, texts: Sequence[bytes]) -> Sentence:
        """The sentence of ``line`` (from 0), given its bytes in each stream; one text with ``tsv``.

        A warning says what is wrong with a line that cannot be taken as it is.
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
        """The ids of a text; LeftOut if it is too long, or has a label that a class vocabulary has not.

        alpha, seed: see ``Vocab.sample``.
        """
        try:
            words = vocab.sample(text, alpha, seed) if alpha else vocab.encode(text)
        except VocabError as error:
            raise LeftOut(NO_LABEL, str(error)) from None
        if len(words) > self.max_length:
            if not self.max_length_crop:
                raise LeftOut(TOO_LONG, f"{len(words)} words with </s>, --max-length is {self.max_length}")
            words = words[: self.max_length]
            if vocab.eos_id >= 0:
                words[-1] = vocab.eos_id
        return [*words[-2::-1], *words[-1:]] if self.right_left else words


def tab_fields(line: bytes, number: int) -> list[bytes]:
    """The fields of a line with tabs between, with empty ones for those that it lacks of ``number``, as in
    Marian (``--tsv``). LeftOut if there are more."""
    fields = line.split(b"\t")
    if len(fields) > number:
        raise LeftOut(BAD_FIELDS, f"{len(fields)} fields separated by tabs, {number} are expected")
    return [*fields, *[b""] * (number - len(fields))]


def _left_out(line: int, problems: list[str]) -> Sentence:
    problem = "; ".join(problems)
    logger.warning("line %d is left out: %s", line + 1, problem)
    return Sentence(line, (), problem)


class SentenceReader:
    """Makes sentences of the rows of a corpus, with their alignments and weights.

    encoder: of the lines. fields: where they are. sentence_weights: whether there is one weight for a
        sentence instead of one for each word (``--data-weighting-type``).
    alphas: for each stream how freely pieces are sampled (``--sentencepiece-alphas``), 0 not at all.
    casing: changes the case of some lines. seed: of sampling.
    """

    def __init__(
        self,
        encoder: LineEncoder,
        fields: Fields,
        *,
        sentence_weights: bool = True,
        alphas: Sequence[float] = (),
        casing: Casing | None = None,
        seed: int = 0,
    ) -> None:
        vocabs = encoder.vocabs
        check_alphas(alphas, len(vocabs))
        for vocab, alpha in zip(vocabs, alphas, strict=False):
            vocab.sample("", alpha, seed)  # a model that cannot be sampled says so here, not in the thread
        self._encoder, self._fields, self._casing = encoder, fields, casing
        self._sentence_weights = sentence_weights
        self._alphas = (*alphas, *[0.0] * (len(vocabs) - len(alphas)))
        self._seed = seed

    @classmethod
    def from_options(
        cls, options: TrainOptions, vocabs: Sequence[Vocab], fields: Fields, seed: int
    ) -> SentenceReader:
        """A reader as Marian's options say."""
        every, title = options.all_caps_every, options.english_title_case_every
        return cls(
            LineEncoder(vocabs, options.max_length, options.max_length_crop, options.right_left),
            fields,
            sentence_weights=options.data_weighting_type == "sentence",
            alphas=options.sentencepiece_alphas,
            casing=Casing(vocabs, every, title) if every or title else None,
            seed=seed,
        )

    def read(self, number: int, row: Row, epoch: int) -> Sentence:
        """The sentence of row ``number``; its problem is the reason why it is left out, the same for all such
        rows."""
        try:
            return self._sentence(number, row, epoch)
        except LeftOut as problem:
            return Sentence(number, (), problem.reason)

    def _sentence(self, number: int, row: Row, epoch: int) -> Sentence:
        fields = self._fields
        texts = tab_fields(row[0], fields.number) if fields.tsv else row
        lines: list[str | bytes] = [texts[place] for place in fields.sentences]
        altered = self._casing is not None and self._casing.alter(number, lines)
        sequences = tuple([self._words(stream, line, number, epoch) for stream, line in enumerate(lines)])
        alignment = weights = None
        if fields.alignment is not None:
            # The links are not those of text that was altered: Marian takes none then, not even that of </s>.
            alignment = [] if altered else self._links(texts[fields.alignment], sequences)
        if fields.weights is not None:
            weights = self._weights(texts[fields.weights], len(sequences[-1]))
        return Sentence(number, sequences, "", alignment, weights)

    def _words(self, stream: int, line: str | bytes, number: int, epoch: int) -> list[int]:
        alpha = self._alphas[stream]
        seed = _seed(self._seed, epoch, number, stream) if alpha else 0
        words = self._encoder.words(self._encoder.vocabs[stream], line, alpha, seed)
        if not words:
            raise LeftOut(NO_WORDS)
        return words

    def _links(self, text: bytes, sequences: Sequence[Sequence[int]]) -> Links:
        """The links of ``0-0 1-2``, and that of both ``</s>``, which Marian adds."""
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
        try:
            weights = list(map(float, text.split()))
        except ValueError:
            raise LeftOut(BAD_WEIGHTS) from None
        if self._encoder.max_length_crop:
            weights = weights[:words]
        # A line without words has none of words either.
        enough = bool(weights) or (words == 1 and not self._sentence_weights)
        if not enough or len(weights) > words or not all(map(math.isfinite, weights)):
            raise LeftOut(BAD_WEIGHTS)
        if self._sentence_weights:
            return weights[:1] * words
        return weights[::-1] if self._encoder.right_left else weights


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
