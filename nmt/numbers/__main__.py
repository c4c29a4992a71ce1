"""``python -m nmt.numbers``: write the corpora and the vocabulary of the number-words task."""

from __future__ import annotations

import argparse
from pathlib import Path

from nmt.numbers import corpus


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="python -m nmt.numbers", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    for name, what in (
        ("train", "training numbers, in random order"),
        ("heldout", "numbers held out of training, all lengths alike"),
    ):
        command = commands.add_parser(name, help=f"write {what}")
        command.add_argument("count", type=int, help="how many lines")
        command.add_argument(
            "-o", "--output", required=True, metavar="PREFIX", help="write PREFIX.en and PREFIX.de"
        )
        command.add_argument("--seed", type=int, default=1, help="seed of the draw (default: 1)")
    command = commands.add_parser("vocab", help="train a SentencePiece vocabulary")
    command.add_argument("texts", nargs="+", type=Path, help="text files to train it on")
    command.add_argument("-o", "--output", required=True, type=Path, metavar="FILE.spm")
    command.add_argument(
        "--size", type=int, default=corpus.PIECES, help=f"number of pieces (default: {corpus.PIECES})"
    )
    return top


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a wrong value or an unusable file ends in one line on stderr."""
    top = parser()
    options = top.parse_args(arguments)
    try:
        if options.command == "vocab":
            corpus.train_vocabulary(options.texts, options.output, options.size)
            written: tuple[Path, ...] = (options.output,)
        else:
            draw = {"train": corpus.training, "heldout": corpus.heldout}[options.command]
            written = corpus.write(draw(options.count, options.seed), options.output)
    except (OSError, ValueError) as error:
        top.exit(1, f"{top.prog}: {error}\n")
    print("wrote", *written)


if __name__ == "__main__":
    main()
