"""From a teacher to a student, in stages that are each done once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from nmt.alignments.aligner import aligned
from nmt.alignments.lexicon import LinkCounts, dump_shortlist
from nmt.alignments.pairs import Pairs
from nmt.alignments.texts import pharaoh, read_pharaoh, split_rows
from nmt.distillation.files import CONFIG, LEXICON, kinds_for, write_files
from nmt.distillation.inputs import (
    VOCAB,
    check,
    continued,
    input_files,
    learned_pieces,
    student_vocabs,
    with_folder,
)
from nmt.distillation.report import measured, write_report
from nmt.distillation.stages import Stages, StoppedError
from nmt.distillation.student import learn_vocab, training_options, tuning_options
from nmt.distillation.teaching import translate, write_corpus
from nmt.files.new_folder import new_folder
from nmt.runtime import compilation_cache, devices
from nmt.search.translator import Translator
from nmt.settings import TRAIN
from nmt.settings.alignment import AlignmentOptions, ShortlistLimits
from nmt.settings.config import options_from
from nmt.settings.distillation import DistillOptions, Teacher
from nmt.settings.option import options_of
from nmt.settings.sections import Devices
from nmt.text.parallel import Row, read_rows
from nmt.text.vocabs.loading import load_vocab, load_vocabs
from nmt.text.vocabs.sentence_piece import SegmentedVocab
from nmt.training.setup import check_training
from nmt.training.trainer import Trainer
from nmt.training.validation.evaluation import ValidationSet, no_lines

logger = logging.getLogger(__name__)

T = TypeVar("T")

USES: Mapping[str, Sequence[str]] = {
    "translate": (*options_of(Teacher), "input", "references", "translations"),
    "vocabs": ("student-vocabs", "student-dim-vocab"),
    "align": (*options_of(AlignmentOptions),),
    "shortlist": (*options_of(ShortlistLimits),),
    "train": ("student", "after", "guided-alignment", "valid-sets"),
    "tune": ("tune-after", "tune-learn-rate", "quantize-bits"),
    "files": (),
    "report": (),
}
"""The stages in order, each with the options that no earlier stage uses."""
SEED = 1
"""The seed of samples, for ``--mbr`` and for learning pieces: a resumed run draws the same ones as an
uninterrupted one."""


def distill(**given: Any) -> str:
    """Distil a teacher into a student, as ``mgraph distill`` does; returns the report.

    given: the options of ``mgraph distill`` in snake_case. Continues an earlier call in the folder
    ``output``, which must have had the same options for the stages that are done, or go on from their files.
    TypeError for an unknown option, and the errors of ``Distillation``.
    """
    return Distillation(options_from(DistillOptions, given)).run()


class Distillation:
    """A teacher translates a text, and a student learns it (Kim and Rush 2016). With ``--translations`` it
    learns those of any other system.

    In the folder ``--output``: ``teacher.target``, the translations; ``corpus.source`` and
    ``corpus.target``, the pairs without empty sides; ``vocab.spm``, if the student's vocabulary is learned;
    ``corpus.align``, the pairs' word alignments; ``lex.s2t`` and ``lex.s2t.bin``, the shortlist;
    ``student.npz``; ``tuned.npz``, fine-tuned in 8 bits; ``marian/`` and, for vocabularies of SentencePiece,
    ``bergamot/``, the files to use, which ``Translator.from_dir`` reads; ``report.json`` and ``report.txt``.

    Raises OptionError for invalid options, DirectoryError for a teacher's folder that does not hold exactly
    one model with its vocabularies, OSError for files that cannot be read, and the errors of the stages;
    StagesError, too, for an ``--output`` that has files to go on from, but no record of what made them;
    StoppedError after ``stop``.
    """

    def __init__(self, options: DistillOptions) -> None:
        self.options, self.folder = with_folder(options), Path(options.output)
        check(self.options)
        self._pieces, self._vocabs = learned_pieces(self.options), student_vocabs(self.options)
        self._trainer: Trainer | None = None
        self._stopped = False

    def stop(self) -> None:
        """End after the current line or update, after learning a vocabulary, after all passes of the aligner,
        or after the current system of the report; safe in signal handlers."""
        self._stopped = True
        if self._trainer:
            self._trainer.stop()

    def _until_stopped(self, items: Iterable[T]) -> Iterator[T]:
        """The items; StoppedError in place of the next one after ``stop``."""
        for item in items:
            if self._stopped:
                raise StoppedError("stopped; run the same command again to continue")
            yield item

    def run(self) -> str:
        """Run the stages that are not done yet; returns the report as text."""
        options = self.options
        with new_folder(self.folder):
            self._check_training()
        stages = Stages(self.folder, USES, _decisive(options), input_files(options), continued(options))
        compilation_cache.use(options.compilation_cache)
        devices.start_all(options.cpu_threads, options.devices)
        student, tuned = self._at("student.npz"), self._at("tuned.npz")
        known = options.translations and f"{options.translations} has the translations of {options.input}"
        stages.run("translate", known or f"the teacher translates {options.input}", self._translate)
        stages.run("vocabs", f"the student's are {' and '.join(dict.fromkeys(self._vocabs))}", self._learn)
        stages.run("align", "words are aligned", self._align)
        stages.run("shortlist", "links are counted", self._count)
        stages.run("train", f"the student is trained for {options.after}", lambda: self._train(student))
        stages.run(
            "tune",
            f"it is fine-tuned in {options.quantize_bits} bits for {options.tune_after}",
            lambda: self._train(tuned, student),
        )
        folders = " and ".join(str(self._at(kind)) for kind in kinds_for(self._vocabs))
        stages.run("files", f"its files go to {folders}", self._write)
        stages.run("report", "teacher and student are measured", lambda: self._report(stages))
        return self._at("report.txt").read_text(encoding="utf-8")

    def _at(self, name: str) -> Path:
        return self.folder / name

    @property
    def _corpus(self) -> tuple[Path, Path]:
        return self._at("corpus.source"), self._at("corpus.target")

    def _check_training(self) -> None:
        """Raise the errors in the options of both trainings, with the teacher's text in place of the corpus,
        and in the validation set, which the report needs even if the trainings do not."""
        source = self.options.input
        given = self._training() | {"train_sets": (source, source), "guided_alignment": "none"}
        tuning = tuning_options(self.options, given, Path())
        trainings = [
            TRAIN.from_python({"model": str(self._at(name)), **made})
            for name, made in (("student.npz", given), ("tuned.npz", {**tuning, "pretrained_model": ""}))
        ]
        for training in trainings:
            check_training(training)
        if not self._pieces:
            ValidationSet.read(trainings[0], load_vocabs(self._vocabs, (0, 0)))
        elif not [*read_rows(self.options.valid_sets)]:  # all of them, which must be equally many
            raise no_lines(self.options.valid_sets)

    def _translator(self, models: tuple[str, ...], vocabs: tuple[str, ...], **given: Any) -> Translator:
        """A translator that uses the compilation cache and the devices as they are already set up."""
        return Translator(
            models,
            vocabs,
            mini_batch=self.options.mini_batch,
            maxi_batch=100,
            maxi_batch_sort="src",
            **given,
        )

    def _teacher(self, **given: Any) -> Translator:
        options = self.options
        return self._translator(
            options.models,
            options.vocabs,
            pieces=options.pieces,
            precision=options.precision,
            weights=options.weights,
            beam_size=options.beam_size,
            normalize=options.normalize,
            **given,
        )

    def _translate(self) -> None:
        options, target = self.options, self._at("teacher.target")
        if options.translations:
            write_corpus(options.input, options.translations, self.folder)
            return
        if not target.exists():
            references, choose = options.references, options.choose
            teacher = self._teacher(mbr=options.mbr, mbr_samples=options.mbr_samples, seed=SEED)
            translate(teacher, options.input, references, choose, target, lambda: self._stopped)
        write_corpus(options.input, target, self.folder)

    def _learn(self) -> None:
        """Learn the student's vocabulary, unless it is given or an earlier run has learned it."""
        path = self._at(VOCAB)
        if self._pieces and not path.exists():
            learn_vocab(path, self._rows, self._pieces, self._languages(), SEED)

    def _languages(self) -> Collection[str]:
        """The language tokens of a teacher that reads raw text."""
        options = self.options
        if not options.pieces:
            return ()
        source, _ = load_vocabs(options.vocabs, (0, 0), pieces=options.pieces)
        return source.languages if isinstance(source, SegmentedVocab) else ()

    def _align(self) -> None:
        links = aligned(Pairs.of(self._split_rows()), self.options)
        with open(self._at("corpus.align"), "w", encoding="ascii") as output:
            output.writelines(f"{pharaoh(found)}\n" for found in self._until_stopped(links))

    def _rows(self) -> Iterator[Row]:
        """The pairs of the corpus; StoppedError after ``stop``."""
        return self._until_stopped(read_rows(list(map(str, self._corpus))))

    def _split_rows(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """The pairs as the student's pieces; StoppedError after ``stop``."""
        return split_rows(self._rows(), self._vocabs)

    def _count(self) -> None:
        options, counts = self.options, LinkCounts()
        with open(self._at("corpus.align"), "rb") as links:
            for number, ((source, target), line) in enumerate(zip(self._split_rows(), links, strict=True), 1):
                counts.add(source, target, read_pharaoh(line, f"{links.name}: line {number}"))
        with open(self._at("lex.s2t"), "wb") as output:
            lines = counts.table(best=options.best, threshold=options.threshold)
            output.writelines(line + b"\n" for line in lines)
        vocabs = [load_vocab(path) for path in self._vocabs]
        dump_shortlist(
            self._at(LEXICON),
            counts,
            *vocabs,
            first=options.first,
            best=options.best,
            threshold=options.threshold,
        )

    def _train(self, model: Path, student: Path | None = None) -> None:
        """Train ``model``, or fine-tune it from ``student``, in this process alone, whatever launched it; an
        interrupted training resumes."""
        given = self._training()
        if student:
            given = tuning_options(self.options, given, student)
        self._trainer = Trainer(model=str(model), **given, devices=self._devices(), num_processes=1)
        if self._stopped:
            raise StoppedError("stopped")
        self._trainer.train()
        if self._trainer.stopped:
            raise StoppedError(f"stopped; run the same command again to continue with {model}")

    def _training(self) -> dict[str, Any]:
        return training_options(self.options, self._vocabs, self._corpus, self._at("corpus.align"))

    def _devices(self) -> tuple[str, ...]:
        """All devices that JAX has: it already runs only on those of ``--devices``."""
        return Devices.devices if self.options.devices == Devices.devices else ("all",)

    def _write(self) -> None:
        for kind in kinds_for(self._vocabs):
            write_files(self._at(kind), kind, self._at("tuned.npz"), self._at(LEXICON), self._vocabs)

    def _report(self, stages: Stages) -> None:
        search = {"beam_size": 1, "normalize": 1.0}
        systems: dict[str, Callable[[], Translator]] = (
            {"teacher": self._teacher} if self.options.models else {}
        )
        systems |= {
            "student, float32": lambda: self._translator(
                (str(self._at("student.npz")),), self._vocabs, **search
            ),
            "student, int8, shortlist": lambda: Translator.from_dir(
                str(self._at("marian")), CONFIG, precision="int8"
            ),
        }
        found = [
            measured(name, make(), self.options.valid_sets)
            for name, make in self._until_stopped(systems.items())
        ]
        logger.info("[distill] report:\n%s", write_report(self.folder, found, stages.seconds).rstrip())


def _decisive(options: DistillOptions) -> dict[str, Any]:
    """The options on which the result depends, by name."""
    values, table = asdict(options), options_of(DistillOptions)
    return {name: values[table[name].attribute] for names in USES.values() for name in names}
