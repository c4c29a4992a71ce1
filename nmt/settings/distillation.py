"""The options of distillation: from a teacher to a student."""

from __future__ import annotations

from nmt.settings.alignment import AlignmentOptions, ShortlistLimits
from nmt.settings.option import Options, again, option
from nmt.settings.sections import (
    BatchOptions,
    BeamOptions,
    Devices,
    Logging,
    Precision,
    Searching,
    TranslatedTexts,
)

CHOICES = ("best", "chrf", "bleu")
STUDENT_AFTER, TUNED_AFTER = "100Ku", "5000u"


class Teacher(Options):
    """What is distilled."""

    title = "Teacher"

    models: tuple[str, ...] = option(
        (), "the model or, as an ensemble, the models; or the folder of a published model", short="m"
    )
    vocabs: tuple[str, ...] = option((), "vocabularies of source and target", short="v")
    pieces: tuple[str, ...] = again(TranslatedTexts, "pieces")
    weights: tuple[float, ...] = option((), "weights of the models of an ensemble")
    precision: tuple[str, ...] = again(Precision, "precision")
    beam_size: int = again(BeamOptions, "beam_size", 6)
    normalize: float = again(BeamOptions, "normalize", 1.0)
    mini_batch: int = again(BatchOptions, "mini_batch", help="lines that the teacher translates at a time")
    choose: str = option(
        "best", "take the best translation of the beam, or the nearest to --references", choices=CHOICES
    )
    mbr: str = again(Searching, "mbr")
    mbr_samples: int = again(Searching, "mbr_samples")


class DistilledTexts(Options):
    """What the teacher translates."""

    title = "Texts"

    input: str = option("", "the source text that the student learns from", short="i")
    references: str = option("", "its known translations, for --choose", short="r")
    translations: str = option("", "what to learn instead of a teacher's translations: those of any system")
    valid_sets: tuple[str, ...] = option((), "source and references, for validation and the report")


class Student(Options):
    """What is trained."""

    title = "Student"

    output: str = option("student", "the folder for all output", short="o")
    student_vocabs: tuple[str, ...] = option(
        (), "vocabularies of source and target; by default the teacher's, or one that is learned"
    )
    student_dim_vocab: int = option(
        0,
        "learn a vocabulary of this many SentencePiece pieces from both sides of the corpus; by default "
        "32000 without --vocabs, or with --pieces",
        least=0,
    )
    student: str = option("", "configuration of mgraph train; overrides the default student's")
    after: str = option(STUDENT_AFTER, "train this long: 100Ku, 10e, 10Gt", short="a")
    guided_alignment: bool = option(False, "let its attention learn the word alignments")
    tune_after: str = option(TUNED_AFTER, "then fine-tune this long with --quantize-bits")
    tune_learn_rate: float = option(0.0001, "with this learning rate", least=0)
    quantize_bits: int = option(8, "bits of its parameters", least=2, most=8)


class DistillOptions(Teacher, DistilledTexts, Student, ShortlistLimits, AlignmentOptions, Devices, Logging):
    """The options of ``mgraph distill`` and of ``nmt.distill``."""
