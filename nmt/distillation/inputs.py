"""What distillation is given, checked before anything is created."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.distillation.files import GEMM_TYPES, LEXICON
from nmt.distillation.report import REPORT, TABLE
from nmt.distillation.stages import RECORD, StagesError
from nmt.files.directories import read_directory
from nmt.search.bayes_risk import check_samples
from nmt.search.beam_search import check_weights
from nmt.settings import OptionError, require_files, require_folder, require_readable
from nmt.settings.distillation import DistillOptions
from nmt.text.lines import is_stream, open_input, read_lines
from nmt.text.vocabs.creation import DEFAULT_PIECES
from nmt.text.vocabs.factored import ENDING as FACTORED
from nmt.text.vocabs.loading import require_pieces
from nmt.training.checkpoints.file_set import WRITTEN
from nmt.training.validation.evaluation import check_sets

VOCAB = "vocab.spm"
_CONTINUED: Mapping[str, Sequence[str]] = {
    "translate": ("teacher.target.part", "teacher.target"),
    "vocabs": (VOCAB,),
    "train": ("student.npz", f".student.npz{WRITTEN}"),
    "tune": ("tuned.npz", f".tuned.npz{WRITTEN}"),
}
# What the stages write besides, and write anew; more goes to the folders of GEMM_TYPES.
_ANEW = ("corpus.source", "corpus.target", "corpus.align", "lex.s2t", LEXICON, REPORT, TABLE, RECORD)


def with_folder(options: DistillOptions) -> DistillOptions:
    """The options; if ``--models`` names a folder, with the files in it. Options that are given override it.

    OptionError if it is also ``--output``: then it would hold the student, too, when it is read again.
    DirectoryError if it does not hold exactly one model with its vocabularies.
    """
    if len(options.models) != 1 or not os.path.isdir(options.models[0]):
        return options
    if os.path.exists(options.output) and os.path.samefile(options.models[0], options.output):
        raise OptionError(f"--output: {options.output} is the teacher's folder; choose another")
    names = "weights", "vocabs", "pieces"
    given = {name: value for name in names if (value := getattr(options, name))}
    found = read_directory(options.models[0], **given)
    files: dict[str, Any] = {name: tuple(found[name]) for name in ("models", *names) if name in found}
    return replace(options, **files)


def learned_pieces(options: DistillOptions) -> int:
    """How many pieces the student's vocabulary is to learn; 0 if it is given."""
    if options.student_dim_vocab:
        return options.student_dim_vocab
    usable = options.student_vocabs or (options.vocabs and not options.pieces)
    return 0 if usable else DEFAULT_PIECES


def student_vocabs(options: DistillOptions) -> tuple[str, ...]:
    """The student's vocabularies, for source and target."""
    if learned_pieces(options):
        return (str(Path(options.output, VOCAB)),) * 2
    return options.student_vocabs or options.vocabs


def continued(options: DistillOptions) -> dict[str, Sequence[str]]:
    """By stage, the files in ``--output`` from which it goes on, also a checkpoint that a killed run has yet
    to move into place; the other stages begin anew."""
    return {name: files for name, files in _CONTINUED.items() if name != "vocabs" or learned_pieces(options)}


def input_files(options: DistillOptions) -> dict[str, Sequence[str]]:
    """The files that are read, by the name of the option."""
    named = {
        "models": options.models,
        "vocabs": options.vocabs,
        "pieces": options.pieces,
        "input": [options.input],
        "references": [options.references],
        "translations": [options.translations],
        "student-vocabs": options.student_vocabs,
        "student": [options.student],
        "valid-sets": options.valid_sets,
    }
    return {name: list(filter(None, paths)) for name, paths in named.items()}


def check(options: DistillOptions) -> None:
    """Raise the errors that can be found before anything is created: OptionError; OSError for files that
    cannot be read; StagesError for an ``--output`` that has files to go on from, but no record of what made
    them."""
    if options.models or not options.translations:
        require_files("--models", options.models, options.vocabs)
    check_weights(options.weights, len(options.models))
    _check_vocabs(options)
    if not options.input:
        raise OptionError("--input: the text for the teacher is needed")
    check_sets(options.valid_sets, 2, tsv=False)
    _check_choice(options)
    inputs = input_files(options)
    for name, paths in inputs.items():
        require_readable(f"--{name}", paths)
    _require_kept(options, inputs)
    del inputs["references"]  # which are read only once
    for name, paths in inputs.items():
        for path in filter(is_stream, paths):
            raise OptionError(f"--{name}: it is read more than once, so a file is needed, got {path}")
    with open_input(options.input) as text:
        if not any(map(bytes.strip, read_lines(text))):
            raise OptionError(f"--input: no words in {options.input}")
    require_folder("--output", options.output)
    if not Path(options.output, RECORD).exists():
        for left in _present(options, chain.from_iterable(continued(options).values())):
            raise StagesError(
                f"{left} is there without {RECORD}, which says how it was made; choose another --output, "
                "or delete the folder"
            )


def _check_vocabs(options: DistillOptions) -> None:
    for name, vocabs in (("vocabs", options.vocabs), ("student-vocabs", options.student_vocabs)):
        if len(vocabs) not in (0, 2):
            raise OptionError(
                f"--{name}: expected two, for source and target, got {len(vocabs)}; models of several "
                "sources cannot be distilled"
            )
    require_pieces(options.pieces, options.vocabs)
    if options.student_vocabs and options.student_dim_vocab:
        raise OptionError("--student-dim-vocab learns a vocabulary, --student-vocabs gives them")
    for path in student_vocabs(options):
        if path.endswith(FACTORED):
            raise OptionError(
                f"--{'student-vocabs' if options.student_vocabs else 'vocabs'}: {path} is factored, and "
                "the student's shortlist needs vocabularies without factors; --student-vocabs gives "
                "others, --student-dim-vocab learns one"
            )


def _check_choice(options: DistillOptions) -> None:
    """Check the choice among the teacher's translations."""
    if options.translations and (options.choose != "best" or options.mbr):
        chosen = "--mbr" if options.mbr else "--choose"
        raise OptionError(f"{chosen} chooses among translations of a teacher; --translations are chosen")
    if options.choose != "best" and not options.references:
        raise OptionError(f"--choose {options.choose} needs --references")
    if options.references and options.choose == "best":
        raise OptionError("--references need --choose chrf or --choose bleu")
    if options.mbr and options.references:
        raise OptionError(f"--mbr {options.mbr} chooses without --references")
    check_samples(options.mbr, options.mbr_samples)


def _require_kept(options: DistillOptions, inputs: Mapping[str, Sequence[str]]) -> None:
    """OptionError if one of the ``inputs``, by the name of the option, is a file that the stages write."""
    written = [*_present(options, [*chain.from_iterable(continued(options).values()), *_ANEW])]
    folders = [*_present(options, GEMM_TYPES)]
    given = ((name, Path(path)) for name, paths in inputs.items() for path in paths)
    for name, path in given:
        if path.exists() and (any(map(path.samefile, written)) or any(map(path.parent.samefile, folders))):
            raise OptionError(
                f"--{name}: {path} has the name of a file that is written to --output; rename it, or "
                "choose another --output"
            )


def _present(options: DistillOptions, names: Iterable[str]) -> Iterator[Path]:
    """Those of the names that ``--output`` has."""
    return filter(Path.exists, (Path(options.output, name) for name in names))
