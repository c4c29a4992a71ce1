"""The text that the matrix's models learn: short sentences in English, German and Dutch words.

The German sentence has its verb at the end; in the Dutch one, the second source of models with two,
adjectives follow their noun. Everything is drawn from a seed.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple


class Words(NamedTuple):
    """One concept in the three languages."""

    english: str
    german: str
    dutch: str


class Sentence(NamedTuple):
    """One sentence in the three languages."""

    english: str
    german: str
    dutch: str


def _words(lines: str) -> list[Words]:
    return [Words(*line.split()) for line in lines.strip().splitlines()]


NOUNS = _words("""
dog Hund hond
cat Katze kat
bird Vogel vogel
horse Pferd paard
child Kind kind
king König koning
house Haus huis
tree Baum boom
river Fluss rivier
book Buch boek
""")
VERBS = _words("""
sees sieht ziet
likes mag mag
finds findet vindet
carries trägt draagt
hears hört hoort
paints malt schildert
""")
ADJECTIVES = _words("""
small kleine kleine
big große grote
old alte oude
red rote rode
white weiße witte
""")
DETERMINERS = _words("""
the das de
a ein een
every jedes elke
""")
ADVERBS = _words("""
today heute vandaag
often oft vaak
here hier hier
""")

TRAINING_LINES = 60
# Test lines that follow the drawn ones: source, target and second source.
ODD_LINES = (
    Sentence("", "", ""),
    Sentence("the zebra sees a xylophone", "das Zebra ein Xylophon sieht", "de zebra ziet een xylofoon"),
    Sentence("dog", "Hund", "hond hond hond"),
    Sentence("cat cat cat cat", "Katze", "kat"),
    Sentence("the child paints", "das", ""),
)


def _phrase(generator: random.Random) -> list[Words]:
    adjectives = generator.sample(ADJECTIVES, generator.choice((0, 0, 1, 1, 2)))
    return [generator.choice(DETERMINERS), *adjectives, generator.choice(NOUNS)]


def sentence(generator: random.Random) -> Sentence:
    """Draw a sentence of four to ten words."""
    subject, verb, thing = _phrase(generator), generator.choice(VERBS), _phrase(generator)
    adverb = [generator.choice(ADVERBS)] if generator.random() < 0.3 else []
    dutch = [word for phrase in (subject, [verb], thing) for word in (*phrase[:1], *phrase[:0:-1])]
    return Sentence(
        " ".join(word.english for word in (*subject, verb, *thing, *adverb)),
        " ".join(word.german for word in (*adverb, *subject, *thing, verb)),
        " ".join(word.dutch for word in (*dutch, *adverb)),
    )


def alignment(pair: Sentence) -> str:
    """The alignment of the English words with the German ones, as Marian reads it: pairs "source-target"."""
    german = {words.english: words.german for words in (*NOUNS, *VERBS, *ADJECTIVES, *DETERMINERS, *ADVERBS)}
    free = dict(enumerate(pair.german.split()))
    links = []
    for place, word in enumerate(pair.english.split()):
        found = next(other for other, candidate in free.items() if candidate == german[word])
        del free[found]
        links.append(f"{place}-{found}")
    return " ".join(links)


def _write(folder: Path, name: str, sentences: list[Sentence]) -> None:
    for language, lines in zip(Sentence._fields, zip(*sentences, strict=True), strict=True):
        path = folder / f"{name}.{language}"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write(folder: Path, drawn: int = 7, odd: int = len(ODD_LINES)) -> None:
    """Write train.LANGUAGE, train.alignment and test.LANGUAGE to a folder.

    drawn, odd: how many test lines are newly drawn sentences, and how many are odd ones.
    """
    generator = random.Random(1)
    training = [sentence(generator) for _ in range(TRAINING_LINES)]
    _write(folder, "train", training)
    links = "".join(f"{alignment(pair)}\n" for pair in training)
    (folder / "train.alignment").write_text(links, encoding="utf-8")
    _write(folder, "test", [*(sentence(generator) for _ in range(drawn)), *ODD_LINES[:odd]])
