"""Vocabularies of words that are made of a lemma and factors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from layers import FactorGroups
from nmt.text.letters import in_capitals, in_small_letters

from .base import EOS_WORD, UNK_WORD, Vocab, VocabError, as_text

ENDING = ".fsv"
SEPARATOR = "|"
LEMMA = "lemma"
MAX_FACTORS = 1 << 25
_GLUED_LEFT, _GLUED_RIGHT = frozenset(("gl+", "wbn", "cbn", "wi")), frozenset(("gr+", "wen", "cen"))
_CASES: Mapping[str, Callable[[str], str]] = {
    "ci": lambda lemma: in_capitals(lemma[:1]) + in_small_letters(lemma[1:]),
    "ca": in_capitals,
    "cn": in_small_letters,
    "scu": in_capitals,
    "scl": in_small_letters,
}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
# How Marian reads these lines of old files.
_MENDED = {
    f"{selector} : _lemma _has_wb": f"{selector} : _lemma _has_gl _has_gr" for selector in "\ufe0e\ufe0f"
}


@dataclass
class Factors:
    """The declarations of a ``.fsv`` file.

    groups: by name of the group, its factors and their numbers within it; the group of lemmas is the first.
    has: for each lemma, the names of the groups of which it has a factor.
    """

    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    has: list[frozenset[str]] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes, path: str) -> Factors:
        """Parse a file: ``_lemma`` and ``_GROUP`` declare groups, ``_has_GROUP`` is allowed for each of them;
        ``WORD : _lemma _has_GROUP ...`` is a lemma, ``FACTOR : _GROUP`` a factor. Lines that begin with ``#``
        are comments. VocabError, with the line, for anything else."""
        found = cls()
        for number, whole in enumerate(as_text(data).split("\n"), 1):
            line = whole.removesuffix("\r")
            words = _MENDED.get(line, line).replace("\t", " ").split(" ")
            words = [word for word in words if word]
            if not words or words[0].startswith("#"):
                continue
            problem = found._declared(words) if words[0].startswith("_") else found._added(words)
            if problem:
                raise VocabError(f"{path}:{number}: {problem}, got '{line:.80}'")
        found._check(path)
        return found

    def _declared(self, words: Sequence[str]) -> str:
        """Add what a line that begins with ``_`` declares; returns its problem, empty if there is none."""
        name = words[0].removeprefix("_has_") if words[0].startswith("_has_") else words[0][1:]
        if words[0].startswith("_has_") or words[1:2] == ["<->"]:
            return "" if name in self.groups else f"there is no group _{name}"
        if len(words) > 1:
            return "expected one name of a group"
        if not self.groups and name != LEMMA:
            return f"the first group must be _{LEMMA}"
        if name in self.groups:
            return "a group is declared twice"
        self.groups[name] = {}
        return ""

    def _added(self, words: Sequence[str]) -> str:
        """Add the lemma or the factor of a line; returns its problem, empty if there is none."""
        word, colon, group, *has = *words, *[""] * (3 - len(words))
        name = group[1:]
        if colon != ":" or not group.startswith("_"):
            return "expected 'WORD : _GROUP _has_GROUP ...'"
        if name not in self.groups:
            return f"there is no group {group}"
        if word in self.groups[name]:
            return f"'{word}' appears twice"
        traits = [trait.removeprefix("_has_") for trait in has if trait]
        unknown = [trait for trait in traits if trait not in self.groups or trait == LEMMA]
        if unknown or (traits and name != LEMMA):
            return "only lemmas have factors, of groups that are declared"
        later = list(self.groups)[self._order(name) + 1 :]
        if name != LEMMA and any(word.startswith(other) for other in later):
            return f"a factor of {group} must not begin with the name of a later group"
        if name != LEMMA and not word.startswith(name):
            return f"the name of a factor of {group} must begin with '{name}'"
        if name != LEMMA and any(self.groups[other] for other in later):
            return "factors must be listed group by group, in the order of the groups"
        self.groups[name][word] = len(self.groups[name])
        if name == LEMMA:
            self.has.append(frozenset(traits))
        return ""

    def _order(self, name: str) -> int:
        return list(self.groups).index(name)

    def _check(self, path: str) -> None:
        lemmas = self.groups.get(LEMMA, {})
        for special in (EOS_WORD, UNK_WORD):
            if special not in lemmas or self.has[lemmas[special]]:
                raise VocabError(f"{path}: a factored vocabulary needs the lemma {special}, without factors")
        for name, factors in self.groups.items():
            if not factors and any(name in has for has in self.has):
                raise VocabError(f"{path}: some lemmas need a factor of the group _{name}, which has none")

    def of_words(self, path: str) -> FactorGroups:
        """The factor groups that words are made of; VocabError if there are too many words."""
        names = list(self.groups)
        sizes = tuple(map(len, self.groups.values()))
        has = tuple(tuple(sorted(map(names.index, own))) for own in self.has)
        found = FactorGroups(sizes, has)
        if found.words * len(sizes) > MAX_FACTORS:
            raise VocabError(
                f"{path}: {found.words:,} words of lemmas and factors; with {len(sizes) - 1} groups of "
                f"factors at most {MAX_FACTORS // len(sizes):,} are possible"
            )
        return found


class FactoredVocab(Vocab):
    """Words of a lemma and factors, written ``lemma|factor|factor`` (Marian: ``FactoredVocab``).

    Only U+0020 separates words; their ids are those of ``layers.FactorGroups``. Separators at the start or
    end of a word, and repeated ones, are ignored. A word is ``unk_id`` if its lemma or a factor is unknown,
    or if its factors are not those that its lemma needs, where Marian stops.

    factors: those of the file. path: the file.
    """

    def __init__(self, factors: Factors, path: str) -> None:
        self.path, self.groups = path, factors.of_words(path)
        self._lemmas, *others = factors.groups.values()
        self._names = list(map(list, factors.groups.values()))
        self._factors = {
            factor: (group, number)
            for group, numbers in enumerate(others, 1)
            for factor, number in numbers.items()
        }
        sizes = self.groups.sizes
        counts = (math.prod(sizes[group] for group in own) for own in self.groups.has)
        self._firsts = list(accumulate(counts, initial=0))
        self.control_ids = ()
        self.unk_id, self.eos_id = (self._firsts[self._lemmas[word]] for word in (UNK_WORD, EOS_WORD))

    def __len__(self) -> int:
        return self.groups.words

    def _id_of(self, word: str | bytes) -> int:
        lemma, *others = [part for part in as_text(word).split(SEPARATOR) if part] or [UNK_WORD]
        if lemma not in self._lemmas or not all(other in self._factors for other in others):
            return self.unk_id
        number, factors = self._lemmas[lemma], dict(self._factors[other] for other in others)
        if tuple(sorted(factors)) != self.groups.has[number]:
            return self.unk_id
        place = 0
        for group in self.groups.has[number]:
            place = place * self.groups.sizes[group] + factors[group]
        return self._firsts[number] + place

    def _word_of(self, number: int) -> str:
        return SEPARATOR.join(self._parts_of(number))

    def _parts_of(self, number: int) -> list[str]:
        """The lemma and the factors of a word."""
        row = self.groups.factors[number]
        return [names[factor] for names, factor in zip(self._names, row, strict=True) if factor >= 0]

    def _encoded(self, line: str | bytes) -> list[int]:
        return [self._id_of(word) for word in as_text(line).split(" ") if word]

    def surface(self, ids: Iterable[int]) -> str:
        """The text of ``ids`` up to ``</s>``, which Marian scores (``--valid-metrics bleu``).

        The names of factors decide: ``ci``, ``ca`` and ``cn`` capitalize a lemma's first letter, all letters,
        or none; ``scu`` and ``scl``, all or none. Letters without a single capital stay as they are. There is
        no space after ``gr+``, ``wen`` and ``cen``, nor before ``gl+``, ``wbn``, ``cbn`` and ``wi``.
        ``\\x2f`` and ``\\u2581`` in a lemma are characters.
        """
        text, glued = "", True
        for number in ids:
            if number == self.eos_id:
                break
            lemma, *factors = self._parts_of(number)
            space = "" if glued or _GLUED_LEFT.intersection(factors) else " "
            glued = bool(_GLUED_RIGHT.intersection(factors))
            lemma = _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), lemma)
            lemma = lemma.removeprefix("\u2581")
            change = next((_CASES[factor] for factor in _CASES if factor in factors), str)
            text += space + change(lemma)
        return text

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The words of ``ids``, separated by spaces."""
        return " ".join(map(self._word_of, self._chosen(ids, ignore_eos)))
