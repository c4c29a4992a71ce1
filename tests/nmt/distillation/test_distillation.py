"""Distillation: the choice of translations, stages done once, wrong options, and a whole run, interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sacrebleu import BLEU, sentence_chrf

import nmt
from mgraph import ArgumentError
from nmt.cli import main
from nmt.distillation import distillation
from nmt.distillation.distillation import SEED, USES, Distillation
from nmt.distillation.files import write_files
from nmt.distillation.report import System, measured, table
from nmt.distillation.stages import RECORD, Stages, StagesError, StoppedError
from nmt.distillation.student import training_options, tuning_options
from nmt.distillation.teaching import nearest, similarity, translate, whole_lines, write_corpus
from nmt.files.directories import read_directory
from nmt.numbers import corpus
from nmt.runtime.launchers import Launch, launched
from nmt.search.results import Translation
from nmt.settings import OptionError
from nmt.settings.distillation import DistillOptions
from nmt.settings.option import options_of
from nmt.settings.sections import Devices, Logging
from nmt.text.parallel import ParallelTextError
from nmt.text.vocabs.base import VocabError
from nmt.text.vocabs.loading import load_vocab
from nmt.training.validation.evaluation import ValidationSetError
from tests.helpers.places import DATA, SHIPPED

FOLDERS = DATA / "directories"
MODEL, VOCAB = str(SHIPPED / "model.npz"), str(SHIPPED / "vocab.spm")


def test_the_nearest_candidate_is_chosen() -> None:
    candidates = ["a house is big", "the house is big", "the big house", ""]
    for metric in ("chrf", "bleu"):
        assert nearest(candidates, "the house is big!", metric) == "the house is big"
        assert nearest(["x", "y"], "z", metric) == "x", "the first of equals"
        assert similarity("the house is big", "the house is big", metric) == pytest.approx(100, abs=1e-4)
    assert nearest(candidates, "big house the", "bleu") == "the big house"
    with pytest.raises(ArgumentError, match="expected a metric of chrf, bleu, got 'ter'"):
        nearest(candidates, "big house the", "ter")
    with pytest.raises(ArgumentError, match="expected at least one candidate"):
        nearest([], "big house the", "bleu")


@pytest.mark.parametrize("hypothesis", ["a hause is bigg.", "the big house is", "house"])
def test_similarities_are_sacrebleus(hypothesis: str) -> None:
    reference = "the house is big!"
    chrf = sentence_chrf(hypothesis, [reference]).score
    assert similarity(hypothesis, reference, "chrf") == pytest.approx(chrf, abs=1e-4)
    bleu = BLEU(smooth_method="add-k", smooth_value=1).sentence_score(hypothesis, [reference]).score
    assert similarity(hypothesis, reference, "bleu") == pytest.approx(bleu, abs=1e-4)


class FakeTeacher:
    """Translates into capitals, with the reverse as second best; ends after ``limit`` lines, as if killed."""

    options = SimpleNamespace(beam_size=2)

    def __init__(self, limit: int = 99) -> None:
        self.limit, self.translated = limit, 0

    def translations(self, lines: Any, *, n_best: int | None, done: int) -> Iterator[Translation]:
        for number, line in enumerate(lines):
            if number < done:
                continue
            if self.translated == self.limit:
                raise KeyboardInterrupt
            self.translated += 1
            text = line.decode().strip()
            yield Translation(number, (text.upper(), text[::-1])[: n_best or 1] if text else (), ())


@pytest.mark.parametrize(("choose", "expected"), [("best", "AB\nCD\n\nEF\n"), ("chrf", "AB\ndc\n\nfe\n")])
def test_translating_goes_on_after_the_last_whole_line(tmp_path: Path, choose: str, expected: str) -> None:
    source, references, target = tmp_path / "source", tmp_path / "references", tmp_path / "target"
    source.write_text("ab\ncd\n\nef\n")
    references.write_text("AB\ndc\nxy\nfe\n")
    arguments = str(source), str(references), choose, target
    with pytest.raises(KeyboardInterrupt):
        translate(FakeTeacher(limit=2), *arguments)
    part = tmp_path / "target.part"
    part.write_bytes(part.read_bytes() + b"half a li")
    teacher = FakeTeacher()
    translate(teacher, *arguments)
    assert teacher.translated == 2 and target.read_text() == expected and not part.exists()
    sides = write_corpus(str(source), target, tmp_path)
    assert [side.read_text().count("\n") for side in sides] == [3, 3]


def test_samples_of_least_risk_are_the_same_after_a_stop(tmp_path: Path) -> None:
    source, whole, cut = tmp_path / "source", tmp_path / "whole", tmp_path / "cut"
    source.write_text("forty-two\nseven thousand one\ntwelve\nninety\n")

    def teacher() -> nmt.Translator:
        return nmt.Translator(MODEL, [VOCAB, VOCAB], mbr="chrf", mbr_samples=5, seed=SEED)

    translate(teacher(), str(source), "", "best", whole)
    answers = iter([False, True])
    with pytest.raises(StoppedError):
        translate(teacher(), str(source), "", "best", cut, lambda: next(answers))
    translate(teacher(), str(source), "", "best", cut)
    assert cut.read_text() == whole.read_text() and len(whole.read_text().split()) == 4


def test_translating_stops_after_a_line_when_asked(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("ab\ncd\nef\n")
    answers = iter([False, True])
    with pytest.raises(StoppedError, match="stopped after line 2 of "):
        translate(FakeTeacher(), str(source), "", "best", tmp_path / "target", lambda: next(answers))
    assert (tmp_path / "target.part").read_text() == "AB\nCD\n"


def test_too_few_references_are_named(tmp_path: Path) -> None:
    source, references = tmp_path / "source", tmp_path / "references"
    source.write_text("ab\ncd\n")
    references.write_text("AB\n")
    with pytest.raises(ParallelTextError, match="references ends after 1 lines, .*source goes on"):
        translate(FakeTeacher(), str(source), str(references), "bleu", tmp_path / "target")


def test_too_many_references_are_named_also_when_run_again(tmp_path: Path) -> None:
    source, references, target = (tmp_path / name for name in ("source", "references", "target"))
    source.write_text("ab\ncd\n")
    references.write_text("AB\nCD\nEF\n")
    for _ in range(2):
        with pytest.raises(ParallelTextError, match="references goes on after 2 lines, .*source ends"):
            translate(FakeTeacher(), str(source), str(references), "bleu", target)
    assert not target.exists()


def test_a_text_without_any_translation_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("ab\n\n")
    target.write_text("\nx\n")
    with pytest.raises(ParallelTextError, match="source: no line has a translation"):
        write_corpus(str(source), target, tmp_path)


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "part"
    assert whole_lines(path) == 0
    path.write_bytes(b"a\n\nb")
    assert whole_lines(path) == 2 and path.read_bytes() == b"a\n\n"


def test_stages_are_done_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = tmp_path / "text"
    text.write_text("a\n")
    ran: list[str] = []

    def stages(beam: int = 4) -> Stages:
        uses = {"first": ("beam-size", "input"), "second": ()}
        return Stages(tmp_path, uses, {"beam-size": beam, "input": str(text)}, {"input": [str(text)]}, {})

    def broken() -> None:
        ran.append("second")
        raise ValueError("disk full")

    caplog.set_level("INFO", "nmt")
    one = stages()
    one.run("first", "something", lambda: ran.append("first"))
    with pytest.raises(ValueError, match="disk full"):
        one.run("second", "something", broken)
    other = stages()
    other.run("first", "something", lambda: ran.append("first"))
    other.run("second", "something", lambda: ran.append("again"))
    assert ran == ["first", "second", "again"] and set(other.seconds) == {"first", "second"}
    told = [record.getMessage().removeprefix("[distill] ") for record in caplog.records[-3:]]
    assert told[:2] == ["1 of 2, first: done before", "2 of 2, second: something"]
    assert told[2].startswith("2 of 2, second: done in 0.")
    with pytest.raises(OptionError, match="--beam-size: 5, but .*stages.json was made with 4"):
        stages(5)
    text.write_text("a\nb\n")
    with pytest.raises(StagesError, match="text has 4 bytes.* had 2.*choose another --output"):
        stages()
    for content in (
        "{",
        "[]",
        '{"options": [], "inputs": [], "seconds": {}}',
        '{"options": {}, "inputs": [[[], 2, ""]], "seconds": {}}',
    ):
        (tmp_path / RECORD).write_text(content)
        with pytest.raises(StagesError, match="expected the record of the stages"):
            stages()


def test_options_may_change_until_a_stage_uses_them(tmp_path: Path) -> None:
    text, valid, other = (tmp_path / name for name in ("text", "valid", "other"))
    for path in (text, valid, other):
        path.write_text("a\n")

    def stages(beam: int = 4, valid: Path = valid, after: str = "9u", bits: int = 8) -> Stages:
        uses = {"translate": ("beam-size", "input"), "train": ("after", "valid-sets"), "tune": ("bits",)}
        files = {"input": (str(text),), "valid-sets": (str(valid),)}
        given = {"beam-size": beam, "after": after, "bits": bits, **files}
        left = dict.fromkeys(uses, ("text",))
        return Stages(tmp_path, uses, given, files, left)

    def stopped() -> None:
        raise StoppedError("stopped")

    stages()
    valid.write_text("a\nb\n")
    with pytest.raises(StoppedError):
        stages(valid=other, after="7u", bits=6).run("translate", "something", stopped)
    with pytest.raises(OptionError, match="--beam-size: 5, but .* was made with 4"):
        stages(5)
    stages().run("translate", "something", lambda: None)
    with pytest.raises(OptionError, match="--after: '7u', but .* was made with '9u'"):
        stages(after="7u")
    with pytest.raises(OptionError, match="--valid-sets: .*other.*, but .* was made with .*valid"):
        stages(valid=other)
    stages(bits=6).run("train", "something", lambda: None)
    with pytest.raises(OptionError, match="--bits: 8, but .* was made with 6"):
        stages()
    valid.write_text("a\n")
    with pytest.raises(StagesError, match="valid has 2 bytes.* had 4"):
        stages(bits=6)


def test_options_of_a_stage_that_left_nothing_may_change(tmp_path: Path) -> None:
    def stages(bits: int) -> Stages:
        return Stages(tmp_path, {"train": ("bits",)}, {"bits": bits}, {}, {"train": ("student.npz",)})

    stages(8)
    (tmp_path / "student.npz").write_text("")
    with pytest.raises(OptionError, match="--bits: 6, but .* was made with 8"):
        stages(6)
    (tmp_path / "student.npz").unlink()
    stages(6).run("train", "something", lambda: None)
    with pytest.raises(OptionError, match="--bits: 8, but .* was made with 6"):
        stages(8)


def test_a_vocabulary_that_is_too_large_can_be_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(60), tmp_path / "text")))
    given: dict[str, Any] = {"input": texts[0], "translations": texts[1], "valid_sets": texts}
    given |= {"output": str(tmp_path / "output"), "cpu_threads": 1}
    monkeypatch.setattr(Distillation, "_check_training", lambda _: None)
    message = "vocab.spm: SentencePiece learns no pieces from these 120 lines: .*Vocabulary size too high"
    with pytest.raises(VocabError, match=message):
        Distillation(DistillOptions(student_dim_vocab=9999, **given)).run()
    monkeypatch.setattr(Distillation, "_align", lambda job: job.stop() or list(job._rows()))
    for _ in range(2):
        with pytest.raises(StoppedError):
            Distillation(DistillOptions(student_dim_vocab=48, **given)).run()
    with pytest.raises(OptionError, match="--student-dim-vocab: 49, but .* was made with 48"):
        Distillation(DistillOptions(student_dim_vocab=49, **given)).run()


def test_no_input_is_overwritten(tmp_path: Path) -> None:
    texts = [tmp_path / "corpus.source", tmp_path / "corpus.target"]
    for path in (*texts, tmp_path / "valid"):
        path.write_text("one\n")
    valid = str(tmp_path / "valid")
    more: dict[str, Any] = {"valid_sets": (valid, valid), "output": os.path.relpath(tmp_path)}
    own = {"input": valid, "translations": valid, **more}
    with pytest.raises(OptionError, match="--input: .*corpus.source has the name of a file that is written"):
        Distillation(DistillOptions(input=str(texts[0]), translations=valid, **more))
    with pytest.raises(OptionError, match="--references: .*corpus.target has the name of a file that is"):
        Distillation(
            options(tmp_path, input=valid, references=str(texts[1]), choose="chrf", valid_sets=(valid,) * 2)
        )
    with pytest.raises(OptionError, match="--output: .*firefox is the teacher's folder; choose another"):
        of_folder("firefox", FOLDERS / "firefox")
    (tmp_path / "marian").mkdir()
    (tmp_path / "marian" / "config.yml").write_text("dim-emb: 64\n")
    with pytest.raises(OptionError, match="--student: .*config.yml has the name of a file that is written"):
        Distillation(DistillOptions(student=str(tmp_path / "marian" / "config.yml"), **own))


def test_a_vocabulary_in_the_output_folder_may_be_given(tmp_path: Path) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(2), tmp_path / "text")))
    vocab = str(tmp_path / "output" / "vocab.spm")
    (tmp_path / "output").mkdir()
    shutil.copyfile(VOCAB, vocab)
    given = options(tmp_path / "output", input=texts[0], valid_sets=texts)
    given = replace(given, vocabs=(vocab, vocab))
    assert Distillation(given)._vocabs == (vocab, vocab)
    with pytest.raises(OptionError, match="--vocabs: .*vocab.spm has the name of a file that is written"):
        Distillation(replace(given, student_dim_vocab=48))


def test_stages_use_every_option_but_where_things_run_and_go() -> None:
    beside = {*options_of(Devices), *options_of(Logging), "output"}
    used = [name for names in USES.values() for name in names]
    assert sorted(used) == sorted({*options_of(DistillOptions)} - beside)


def options(folder: Path, **given: Any) -> DistillOptions:
    return DistillOptions(models=(MODEL,), vocabs=(VOCAB, VOCAB), output=str(folder), **given)


def test_the_students_options(tmp_path: Path) -> None:
    config = tmp_path / "student.yml"
    config.write_text("dim-emb: 64\ndec-depth: 3\nlr-warmup: 100\n")
    places = (tmp_path / "source", tmp_path / "target"), tmp_path / "links"
    found = training_options(options(tmp_path, student=str(config), after="7u"), (VOCAB, VOCAB), *places)
    assert (found["dim_emb"], found["enc_depth"], found["dec_cell"]) == (64, 6, "ssru")
    assert found["transformer_tied_layers"] == (1, 1, 1) and found["tied_embeddings_all"]
    assert (found["after"], found["guided_alignment"], found["lr_warmup"]) == ("7u", "none", "100")
    same = VOCAB, os.path.relpath(VOCAB)
    guided = training_options(options(tmp_path, guided_alignment=True), same, *places)
    assert guided["guided_alignment"] == str(places[1]) and guided["tied_embeddings_all"]
    other = training_options(options(tmp_path), (VOCAB, str(config)), *places)
    assert other["vocabs"] == (VOCAB, str(config))
    assert other["tied_embeddings"] and "tied_embeddings_all" not in other
    tuned = tuning_options(options(tmp_path, tune_after="3u"), found, tmp_path / "student.npz")
    assert (tuned["quantize_bits"], tuned["exponential_smoothing"], tuned["after"]) == (8, 0.0, "3u")
    for name, value in (
        ("train-sets", "[a, b]"),
        ("input-types", "[class, class]"),
        ("devices", "[0, 1]"),
        ("num-processes", "2"),
    ):
        config.write_text(f"{name}: {value}\n")
        with pytest.raises(OptionError, match=f"student.yml: {name} is chosen by mgraph distill"):
            training_options(options(tmp_path, student=str(config)), (VOCAB, VOCAB), *places)


def of_folder(name: str, output: Path, **given: Any) -> Distillation:
    raw, translated = str(FOLDERS / "raw.txt"), str(FOLDERS / "opus-mt.txt")
    known = {"input": raw, "valid_sets": (raw, translated), "output": str(output), **given}
    return Distillation(DistillOptions(models=(str(FOLDERS / name),), **known))


def test_opus_mt_teaches_a_student_with_pieces_of_its_own(tmp_path: Path) -> None:
    job = of_folder("opus-mt", tmp_path, student_dim_vocab=44, mini_batch=1)
    for stage in (job._translate, job._learn, job._align, job._count):
        stage()
    assert (tmp_path / "teacher.target").read_bytes() == (FOLDERS / "opus-mt.txt").read_bytes()
    learned = str(tmp_path / "vocab.spm")
    assert job._training()["vocabs"] == (learned, learned) and job._training()["tied_embeddings_all"]
    vocab = load_vocab(learned)
    pieces = [vocab[number] for number in vocab.encode(">>deu<< forty-two")]
    assert len(vocab) == 44 and pieces[:2] == ["▁", ">>deu<<"], "a language token stays whole"
    assert vocab.decode(vocab.encode("neunundneunzig")) == "neunundneunzig", "both sides are in it"
    assert all(len(line.split()) == 3 for line in (tmp_path / "lex.s2t").read_text().splitlines())
    before = (tmp_path / "vocab.spm").stat()
    job._learn()
    assert (tmp_path / "vocab.spm").stat() == before, "a run that goes on keeps it"


def test_whose_vocabularies_the_student_has(tmp_path: Path) -> None:
    learned, yml = str(tmp_path / "vocab.spm"), str(next((FOLDERS / "opus-mt").glob("*.vocab.yml")))
    firefox = str(FOLDERS / "firefox" / "vocab.ende.spm")
    assert of_folder("opus-mt", tmp_path)._vocabs == (learned, learned)
    assert of_folder("firefox", tmp_path)._vocabs == (firefox, firefox)
    sampled = of_folder("firefox", tmp_path, student_dim_vocab=40, mbr="chrf", mbr_samples=2)
    assert sampled._vocabs == (learned, learned)
    given = of_folder("opus-mt", tmp_path, student_vocabs=(VOCAB, firefox))
    assert given._vocabs == (VOCAB, firefox) and given.options.vocabs == (yml, yml)
    assert [Path(path).name for path in given.options.pieces] == ["source.spm", "target.spm"]
    swapped = given.options.pieces[::-1]
    assert of_folder("opus-mt", tmp_path, pieces=swapped).options.pieces == swapped


def test_translations_of_another_system_are_learned_without_a_teacher(tmp_path: Path) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(60), tmp_path / "text")))
    valid = tuple(map(str, corpus.write(corpus.heldout(2), tmp_path / "valid")))
    more: dict[str, Any] = {"input": texts[0], "translations": texts[1], "valid_sets": valid}
    learned, other = tmp_path / "learned", tmp_path / "other"
    learned.mkdir()
    other.mkdir()
    job = Distillation(DistillOptions(output=str(learned), student_dim_vocab=48, **more))
    job._check_training()
    for stage in (job._translate, job._learn):
        stage()
    for written, given in zip(("corpus.source", "corpus.target"), texts, strict=True):
        assert (learned / written).read_bytes() == Path(given).read_bytes()
    assert len(load_vocab(learned / "vocab.spm")) == 48
    assert Distillation(DistillOptions(output=str(other), **more))._pieces == 32000
    known = Distillation(DistillOptions(output=str(other), vocabs=(VOCAB, VOCAB), **more))
    known._check_training()
    assert known._vocabs == (VOCAB, VOCAB)
    Path(texts[1]).write_text("eins\n")
    with pytest.raises(ParallelTextError, match="text.de ends after 1 lines, the other goes on"):
        job._translate()
    Path(valid[0]).write_text("")
    Path(valid[1]).write_text("")
    for one in (job, known):
        with pytest.raises(ValidationSetError, match="--valid-sets: no lines in .*valid"):
            one._check_training()


def test_a_teacher_that_translates_nothing_is_measured_if_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(2), tmp_path / "text")))
    names: list[str] = []

    def noted(name: str, *_: Any) -> System:
        names.append(name)
        return System(name, 1, 1, 1.0, 1.0, 1.0, 1.0)

    monkeypatch.setattr(distillation, "measured", noted)
    monkeypatch.setattr(Distillation, "_translator", lambda *_, **__: None)
    monkeypatch.setattr(distillation.Translator, "from_dir", lambda *_, **__: None)
    more: dict[str, Any] = {"input": texts[0], "translations": texts[1], "valid_sets": texts}
    stages = Stages(tmp_path, {}, {}, {}, {})
    Distillation(DistillOptions(output=str(tmp_path), **more))._report(stages)
    Distillation(options(tmp_path, **more))._report(stages)
    students = ["student, float32", "student, int8, shortlist"]
    assert names == [*students, "teacher", *students]


def test_files_for_bergamot_need_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(2), tmp_path / "text")))
    words = tmp_path / "vocab.yml"
    words.write_text("</s>: 0\n<unk>: 1\n")
    written: list[str] = []
    monkeypatch.setattr(distillation, "write_files", lambda folder, *_: written.append(folder.name))
    given = options(tmp_path, input=texts[0], valid_sets=texts)
    for vocabs in ((VOCAB, VOCAB), (VOCAB, str(words))):
        Distillation(replace(given, vocabs=vocabs))._write()
    assert written == ["marian", "bergamot", "marian"]


@pytest.mark.parametrize("kind, code", [("marian", 0x10001), ("bergamot", 0x4101)])
def test_the_files_of_a_student_are_a_folder_to_translate_with(tmp_path: Path, kind: str, code: int) -> None:
    lexicon, copied = tmp_path / "lexicon", tmp_path / "vocab.wide.spm"
    lexicon.write_bytes(b"shortlist")
    shutil.copyfile(VOCAB, copied)
    for vocabs, names in (
        ((VOCAB, VOCAB), ["vocab.spm", "vocab.spm"]),
        ((VOCAB, str(copied)), ["srcvocab.spm", "trgvocab.spm"]),
    ):
        folder = tmp_path / names[0]
        for _ in range(2):  # again, as after a run that was killed meanwhile
            write_files(folder, kind, Path(MODEL), lexicon, vocabs)
        found = read_directory(folder, "config.yml")
        assert found["models"] == (str(folder / "model.intgemm8.bin"),)
        assert found["vocabs"] == tuple(str(folder / name) for name in names)
        assert found["shortlist"] == (str(folder / "lex.s2t.bin"), "0")
        assert all((folder / name).read_bytes() == Path(VOCAB).read_bytes() for name in names)
        assert (folder / "lex.s2t.bin").read_bytes() == b"shortlist"
        model = (folder / "model.intgemm8.bin").read_bytes()
        types = {int.from_bytes(model[start : start + 8], "little") for start in range(24, 24 + 32 * 87, 32)}
        assert types == {code, 0x101, 0x404}, "matrices in 8 bits, other parameters, options"


def test_a_student_is_trained_by_one_of_several_processes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    class Noted(nmt.Trainer):
        def train(self) -> None:
            launch = launched(self.options.num_processes, self.options.process_id)
            trained.append((self.options.model, launch))

    monkeypatch.setattr(distillation, "Trainer", Noted)
    slurm = {"JOB_ID": "1", "STEP_NODELIST": "a", "NTASKS": "3", "PROCID": "1", "LOCALID": "1"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert launched().count == 3
    texts = tuple(map(str, corpus.write(corpus.training(2), tmp_path / "text")))
    job = Distillation(options(tmp_path, input=texts[0], valid_sets=texts))
    job._train(tmp_path / "student.npz")
    assert trained == [(str(tmp_path / "student.npz"), Launch("", 0, 1))]


def test_stages_without_lines_to_translate_or_updates_stop_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(3), tmp_path / "text")))
    write_corpus(texts[0], Path(texts[1]), tmp_path)
    job = Distillation(options(tmp_path, input=texts[0], valid_sets=texts))
    real, measured = distillation.aligned, []

    def aligned(*arguments: Any) -> Any:
        for number, links in enumerate(real(*arguments)):
            if number == 2:
                job.stop()
            yield links

    monkeypatch.setattr(distillation, "measured", lambda *arguments: measured.append(arguments))
    monkeypatch.setattr(distillation, "aligned", aligned)
    with pytest.raises(StoppedError):
        job._align()
    assert (tmp_path / "corpus.align").read_text().count("\n") == 2
    stages = Stages(tmp_path, {}, {}, {}, {})
    learning = Distillation(replace(job.options, student_dim_vocab=9))
    learning.stop()
    for stage in (learning._learn, job._align, job._count, lambda: job._report(stages)):
        with pytest.raises(StoppedError):
            stage()
    assert not measured and not (tmp_path / "lex.s2t").exists() and not (tmp_path / "vocab.spm").exists()


@pytest.mark.parametrize(
    "name", ["teacher.target.part", "teacher.target", "vocab.spm", "student.npz", "tuned.npz"]
)
def test_files_without_a_record_of_what_made_them_are_not_continued(tmp_path: Path, name: str) -> None:
    texts = tuple(map(str, corpus.write(corpus.training(2), tmp_path / "text")))
    (tmp_path / name).write_text("of others\n")
    given = options(tmp_path, input=texts[0], valid_sets=texts, student_dim_vocab=48)
    with pytest.raises(StagesError, match=f"{name} is there without {RECORD}.*choose another --output"):
        Distillation(given)
    (tmp_path / RECORD).write_text("{}")
    Distillation(given)


ENOUGH = ["-m", MODEL, "-v", VOCAB, VOCAB, "-i", "text", "--valid-sets", "text", "text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--models: at least one model is needed"),
        (["-m", MODEL, "-v", VOCAB, VOCAB], "--input: the text for the teacher is needed"),
        ([*ENOUGH[:5], "-i", "none", *ENOUGH[7:]], "--input: no words in none"),
        ([*ENOUGH[:7]], "--valid-sets: 2 files, one for each vocabulary, are needed, got 0"),
        ([*ENOUGH, "--choose", "chrf"], "--choose chrf needs --references"),
        ([*ENOUGH, "-r", "text"], "--references need --choose"),
        (
            [*ENOUGH, "-r", "text", "--choose", "bleu", "--mbr", "chrf"],
            "--mbr chrf chooses without --references",
        ),
        ([*ENOUGH, "--mbr-samples", "9"], "--mbr-samples needs --mbr"),
        ([*ENOUGH, "--weights", "1", "2"], "expected one weight for each of 1 model(s), got 2"),
        ([*ENOUGH, "--student", "no.yml"], "no.yml: No such file or directory (--student)"),
        ([*ENOUGH, "--student", "wrong.yml"], "wrong.yml: unknown option --dim-embs; did you mean --dim-emb"),
        ([*ENOUGH, "--after", "many"], "many"),
        (
            [*ENOUGH, "--student-vocabs", VOCAB],
            "--student-vocabs: expected two, for source and target, got 1",
        ),
        (
            [*ENOUGH, "--student-vocabs", "no.spm", VOCAB],
            "no.spm: No such file or directory (--student-vocabs)",
        ),
        (
            [*ENOUGH, "--student-vocabs", VOCAB, VOCAB, "--student-dim-vocab", "9"],
            "--student-dim-vocab learns a vocabulary, --student-vocabs gives them",
        ),
        (
            [*ENOUGH[:4], str(DATA / "factored" / "source.fsv"), *ENOUGH[5:]],
            "source.fsv is factored, and the student's shortlist needs vocabularies without factors",
        ),
        (
            [*ENOUGH, "--pieces", VOCAB],
            "--pieces: expected one SentencePiece model for each of the 2 --vocabs, got 1",
        ),
        (
            [*ENOUGH[5:], "--translations", "text", "--pieces", VOCAB, VOCAB],
            "--pieces: expected one SentencePiece model for each of the 0 --vocabs, got 2",
        ),
        (["-m", ".", *ENOUGH[5:]], ".: no model (.npz or .bin)"),
        (
            [*ENOUGH, "--translations", "text", "--mbr", "chrf"],
            "--mbr chooses among translations of a teacher; --translations are chosen",
        ),
        ([*ENOUGH[5:], "--translations", "no.de"], "no.de: No such file or directory (--translations)"),
        ([*ENOUGH[5:]], "--models: at least one model is needed"),
        ([*ENOUGH[:-1], "two"], "the file text ends after 1 lines, the other goes on"),
        ([*ENOUGH[:-1], "-"], "--valid-sets: files are needed, got -"),
        ([*ENOUGH[:-2], "none", "none"], "--valid-sets: no lines in none and none"),
        (
            [*ENOUGH[:5], "-i", "-", *ENOUGH[7:]],
            "--input: it is read more than once, so a file is needed, got -",
        ),
        (
            [*ENOUGH, "--student", "pipe"],
            "--student: it is read more than once, so a file is needed, got pipe",
        ),
        ([*ENOUGH[:-1], "pipe"], "--valid-sets: it is read more than once, so a file is needed, got pipe"),
    ],
)
def test_wrong_options_are_named(words, message, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("text", "one\n"), ("two", "one\ntwo\n"), ("none", "")):
        Path(name).write_text(text)
    Path("wrong.yml").write_text("dim-embs: 3\n")
    os.mkfifo("pipe")
    assert main(["distill", *words]) != 0
    assert message in capfd.readouterr().err
    assert not Path("student").exists()


def test_unknown_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="unknown option beamsize; did you mean beam_size"):
        nmt.distill(beamsize=3)


def test_the_table_of_the_report() -> None:
    system = System("student, int8", 1_234_567, 300_000, 120.5, 30.25, 55.5, 0.975)
    text = table([system], {"train": 61.4})
    assert text.splitlines()[1].split() == "student, int8 1.23 300,000 120.5 30.25 55.50 97.5%".split()
    assert text.endswith("train 61 s\n")


def test_lines_of_the_validation_set_end_as_in_training(tmp_path: Path) -> None:
    sets = [tmp_path / "valid.en", tmp_path / "valid.de"]
    sets[0].write_bytes(b"one\rtwo\r\nthree\n")
    sets[1].write_bytes(b"eins\ndrei\n")
    given: list[Any] = []
    translator: Any = SimpleNamespace(
        translate=lambda lines: given.append([*lines]) or ["eins", "x"],
        options=SimpleNamespace(models=(MODEL,)),
        models=(nmt.load_model(MODEL),),
    )
    found = measured("student", translator, [*map(str, sets)])
    assert found.equal == 0.5 and found.bytes == os.path.getsize(MODEL)
    assert found.parameters == sum(value.size for value in translator.models[0].params.values())
    assert given == [[b"one\rtwo", b"three"]] * 4, "once for the metrics, and three times for the speed"


SMALL = """\
seed: 1
dim-emb: 64
enc-depth: 1
dec-depth: 1
transformer-heads: 4
transformer-dim-ffn: 64
mini-batch: 8
save-freq: 4u
valid-freq: 100u
"""


def wait_for(process: subprocess.Popen[bytes], there: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not there():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.thorough
def test_an_interrupted_run_goes_on_to_the_same_files(tmp_path: Path) -> None:
    text, _ = corpus.write(corpus.training(200), tmp_path / "text")
    valid = corpus.write(corpus.heldout(12), tmp_path / "heldout")
    config = tmp_path / "student.yml"
    config.write_text(SMALL)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    words = [sys.executable, "-m", "nmt", "distill", "-m", MODEL, "-v", VOCAB, VOCAB, "-i", str(text)]
    words += [
        "--valid-sets",
        *map(str, valid),
        "--student",
        str(config),
        "--after",
        "40u",
        "--tune-after",
        "6u",
    ]
    words += ["-b", "2", "--mini-batch", "1", "--cpu-threads", "1", "--student-dim-vocab", "96", "-o"]

    process = subprocess.Popen([*words, str(killed)])
    record = killed / RECORD
    wait_for(process, lambda: any(path.stat().st_size for path in killed.glob("teacher.target*")))
    process.kill()
    process.wait()
    process = subprocess.Popen([*words, str(killed)])
    wait_for(process, (killed / "student.npz.progress.yml").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    seconds = json.loads(record.read_text())["seconds"]
    assert set(seconds) == {"translate", "vocabs", "align", "shortlist"}
    assert subprocess.run([*words, str(killed)], check=False).returncode == 0

    report = subprocess.run([*words, str(whole)], check=True, capture_output=True, text=True).stdout
    assert "student, int8, shortlist" in report
    for name in (
        "corpus.target",
        "vocab.spm",
        "corpus.align",
        "lex.s2t",
        "marian/model.intgemm8.bin",
        "bergamot/model.intgemm8.bin",
    ):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    assert sorted(os.listdir(whole / "bergamot")) == [
        "config.yml",
        "lex.s2t.bin",
        "model.intgemm8.bin",
        "vocab.spm",
    ]
    systems = json.loads((whole / "report.json").read_text())["systems"]
    assert systems[0]["equal"] > 0.9
    assert systems[2]["bytes"] < systems[1]["bytes"] / 2
