"""``mgraph decode`` and ``mgraph score`` with options and texts drawn at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from .models import Known, known

# One value of each tuple is drawn; an empty one omits the option.
BEAMS = ("-b 1", "-b 2", "-b 4", "-b 6", "-b 5 -n", "-b 3 -n 0.6", "-b 4 -n 1", "-b 8", "-b 12")
PENALTIES = ("", "", "--word-penalty 0.3", "--word-penalty -0.5")
CROPS = ("", "", "--max-length 5 --max-length-crop", "--max-length 12 --max-length-crop")
FACTORS = ("", "", *(f"--max-length-factor {factor}" for factor in (0.02, 0.1, 0.6, 1.3)))
WORDS = ("", "", "--allow-unk", "--allow-special")
LISTS = ("", "--n-best", "--word-scores", "--n-best --word-scores")
ALIGNMENTS = ("", "", *(f"--alignment {kind}" for kind in ("hard", "soft", 0.2, 0.7, 1)))
BATCHES = (
    "",
    "--mini-batch 3",
    "--mini-batch 16 --maxi-batch 10 --maxi-batch-sort src",
    "--mini-batch-words 60 --maxi-batch 5",
    "--mini-batch-words 40 --maxi-batch 5 --maxi-batch-sort src --mini-batch 4",
)
COSTS = ("", "", "", "--skip-cost")
DECODE = (BEAMS, PENALTIES, CROPS, FACTORS, WORDS, LISTS, ALIGNMENTS, BATCHES, COSTS)
PIECES = ("", "--no-spm-decode", "--no-spm-encode")
SUMMARIES = ("", "", "", "--summary", "--summary perplexity", "--summary ce-mean-words", "--summary ce-sum")
SCORE = (("", "", "-n"), ("", "--word-scores"), ALIGNMENTS, SUMMARIES, CROPS, BATCHES)
WEIGHTS = ("0.3", "0.5", "1", "2")
# Odd lines; none has a tab, which would separate fields.
ODD = (
    *("", " ", "  two  spaces  ", "x\u00a0y", "</s>", "<unk>", "a </s> b", "ÄÖÜ ß 日本", "e\u0301", "\u200b"),
    *("x\ry", "(", ". . . .", "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3),
)
BATCHING = ("--mini-batch", "--mini-batch-words", "--maxi-batch", "--maxi-batch-sort")


class Command(NamedTuple):
    """A command line; ``files`` has the text of each file that must be written for it.

    marian_exact: whether our command needs ``--marian-exact`` to decode as Marian does.
    """

    name: str
    arguments: tuple[str, ...]
    files: dict[str, str]
    stdin: str
    marian_exact: bool

    @property
    def one_by_one(self) -> list[str]:
        """The arguments for Marian, one sentence per batch, because its results depend on the batch."""
        kept, option = [], ""
        for word in self.arguments:
            option = word if word.startswith("-") else option
            if option not in BATCHING:
                kept.append(word)
        return [*kept, "--mini-batch", "1", "--maxi-batch", "1"]


def draw(count: int, seed: int) -> list[Command]:
    """Draw ``count`` commands; the same seed gives the same commands."""
    generator, models = random.Random(seed), known()
    return [(_decode if generator.random() < 0.65 else _score)(generator, models) for _ in range(count)]


def _decode(generator: random.Random, models: Sequence[Known]) -> Command:
    first = generator.choice(models)
    streams = _texts(generator, first.sources)
    options = _options(generator, DECODE)
    if first.pieces and generator.random() < 0.3:
        streams.append([_prefix(generator, first) for _ in streams[0]])
        given, files, stdin = ["--tsv", "--force-decode"], {}, _fields(streams)
    else:
        given, files, stdin = _given(generator, "-i", streams)
        options += generator.choice(PIECES).split() if first.pieces else []
        if generator.random() < 0.25:
            files["shortlist"] = _shortlist(generator, first)
            limits = (generator.choice(sizes) for sizes in (("1", "5", "20"), ("1", "3"), ("0", "0.3")))
            options += ["--shortlist", "shortlist", *limits]
    members = [first]
    if not first.marian_exact and generator.random() < 0.3:
        others = [m for m in models if m.vocabs == first.vocabs and m != first and not m.marian_exact]
        members += generator.sample(others, min(len(others), generator.choice((1, 2))))
        if generator.random() < 0.7:
            options += ["--weights", *generator.choices(WEIGHTS, k=len(members))]
    named = ["decode", "-m", *(member.model for member in members), "-v", *first.vocabs]
    return Command(first.name, (*named, *given, *options), files, stdin, first.marian_exact)


def _score(generator: random.Random, models: Sequence[Known]) -> Command:
    model = generator.choice(models)
    options = _options(generator, SCORE)
    if len(model.sources) == 1 and generator.random() < 0.15:
        [lines] = _texts(generator, model.sources)
        entries = [
            f"{number} ||| {generator.choice(model.target)} ||| F0= -1.5 ||| -1.5"
            for number in range(len(lines))
            for _ in range(generator.choice((1, 2, 3)))
        ]
        files = {"source": _joined(lines), "entries": _joined(entries)}
        given, stdin = ["-t", *files, "--n-best"], ""
    else:
        given, files, stdin = _given(generator, "-t", _texts(generator, (*model.sources, model.target)))
    words = ("score", "-m", model.model, "-v", *model.vocabs, *given, *options)
    return Command(model.name, words, files, stdin, False)


def _options(generator: random.Random, groups: Sequence[Sequence[str]]) -> list[str]:
    return [word for group in groups for word in generator.choice(group).split()]


def _texts(generator: random.Random, streams: Sequence[Sequence[str]]) -> list[list[str]]:
    """Some lines of all streams, odd ones among them."""
    length = min(map(len, streams))
    chosen = generator.choices(range(length), k=generator.choice((1, 3, 7, 12)))
    lines = [[stream[place] for place in chosen] for stream in streams]
    for _ in range(generator.choice((0, 0, 1, 2, 3))):
        place = generator.randint(0, len(chosen))
        for number, stream in enumerate(lines):
            stream.insert(
                place, generator.choice(ODD if number == 0 else (*streams[number][:1], "", "x y z"))
            )
    return lines


def _given(
    generator: random.Random, option: str, streams: list[list[str]]
) -> tuple[list[str], dict[str, str], str]:
    """The options that give the texts, as files or fields; the files; the standard input."""
    if generator.random() < 0.2:
        return ["--tsv", *(() if option == "-i" else (option, "stdin"))], {}, _fields(streams)
    if option == "-i" and len(streams) == 1 and generator.random() < 0.5:
        return [], {}, _joined(streams[0])
    files = {f"text{number}": _joined(stream) for number, stream in enumerate(streams)}
    return [option, *files], files, ""


def _prefix(generator: random.Random, model: Known) -> str:
    return generator.choice(model.target)[: generator.randrange(12)]


def _shortlist(generator: random.Random, model: Known) -> str:
    """A lexicon; each line has a target word, a source word and a probability."""
    words = [[word for line in lines for word in line.split()] for lines in (model.target, model.sources[0])]
    entries = (f"{' '.join(map(generator.choice, words))} {generator.random():.4f}" for _ in range(400))
    return _joined(list(entries))


def _fields(streams: Sequence[Sequence[str]]) -> str:
    return _joined(["\t".join(row) for row in zip(*streams, strict=True)])


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
