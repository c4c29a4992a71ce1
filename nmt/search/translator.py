"""Translation of lines of text with Marian models (``mgraph decode``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import jax

from mgraph.device import check_process
from mgraph.files.paths import path_text
from nmt.files import load_model
from nmt.files.directories import read_directory
from nmt.models import Model
from nmt.runtime import compilation_cache, devices
from nmt.search.bayes_risk import Utility, read_risk
from nmt.search.beam_search import BeamSearch, check_weights
from nmt.search.choice import Sampling, read_sampling
from nmt.search.few_batches import KEPT_NUMBERS, FewBatches
from nmt.search.made_from_options import MadeFromOptions
from nmt.search.results import Printing, Translation
from nmt.search.schedule import searches_at_once
from nmt.search.service import TranslationService
from nmt.search.shortlist import load_shortlist
from nmt.search.states import States, encode_sentences
from nmt.settings import (
    DECODE,
    DecodeOptions,
    OptionError,
    products_in,
    require_files,
    require_readable,
    whole_number,
)
from nmt.settings.config import log_notices, takes
from nmt.settings.model_options import described_model
from nmt.settings.option import options_of
from nmt.settings.sections import DecodedModelOptions, Devices, IntegerProducts, Precision
from nmt.text.batches import windows
from nmt.text.lines import read_lines
from nmt.text.output import InOrder, read_alignment
from nmt.text.parallel import ParallelLines, source_names
from nmt.text.sentences import LineEncoder
from nmt.text.vocabs.agreement import check_agreement
from nmt.text.vocabs.factored import ENDING
from nmt.text.vocabs.loading import load_vocabs

if TYPE_CHECKING:
    from nmt.settings.keywords import DecodeKeywords, OverrideKeywords, Path, Paths


logger = logging.getLogger(__name__)

_OF_LOADING = frozenset(
    option.attribute
    for section in (DecodedModelOptions, Devices, Precision, IntegerProducts)
    for option in options_of(section).values()
) | {"vocabs", "pieces", "no_spm_encode", "no_spm_decode", "marian_exact", "cpu_devices"}
"""Options that matter only when models and vocabularies are loaded."""

Lines = Iterable[str | bytes]


class Translator(MadeFromOptions):
    """Translates lines with one or several models; its results are those of ``mgraph decode``.

    models: path of the model file, or paths of several with the same target vocabulary (an ensemble).
    vocabs: paths of the vocabularies of the sources and, last, of the target.
    mbr: ``chrf``, ``bleu`` or your own utility, a function of the texts of a hypothesis and a reference:
    choose by minimum Bayes risk, among ``mbr_samples`` samples or in the n-best list (``BayesRisk``).
    given: Marian's decoding options in snake_case with Marian's defaults, such as ``beam_size=4``,
    ``n_best=True`` or ``shortlist=[path, first, best, threshold]``; also ``pieces=[source, target]``, the
    SentencePiece models that split and join raw text if the vocabularies list their pieces (OPUS-MT); before
    JAX has started also ``cpu_threads``, ``devices``, ``cpu_devices`` and ``compilation_cache``.
    ``nmt.settings.DecodeOptions`` lists them with types; an object of that class may be passed in place of
    ``models``. Options of the command line only, such as ``quiet``, are refused; the error says what to do
    instead.

    Methods that take lines take one text for each source of the models (also one for a language model: only
    its number of words counts), and with ``force_decode`` one more with the first words of the translations.
    With ``tsv`` they take one text with tab-separated fields.

    On a CPU up to ``cpu_threads`` searches, at most 8, run at the same time, each in its own memory; with
    several devices, each runs at least one search and has its own copy of the parameters. Files are read
    once, here. A few programs serve lines of all lengths; they are compiled when first needed. A copied or
    unpickled translator is built again from the same options: it reads the files again.

    Raises OptionError for an invalid value, TypeError for an unknown option, ModelFileError and other
    MGraphErrors for files that cannot be used, OSError for missing ones. DeviceError in a process forked from
    one in which JAX ran.
    """

    @takes(DECODE)
    def __init__(
        self,
        models: Paths | DecodeOptions,
        vocabs: Paths = (),
        *,
        mbr: str | Utility = "",
        **given: Unpack[DecodeKeywords],
    ) -> None:
        more: dict[str, Any] = {**given, "vocabs": vocabs} if vocabs else {**given}
        self._utility = mbr if callable(mbr) else None
        if mbr and self._utility is None:
            more["mbr"] = mbr
        if isinstance(models, DecodeOptions):
            options = DECODE.changed(models, more)
        else:
            options = DECODE.from_python({"models": models, **more})
            log_notices(DECODE, options)
        self.options: DecodeOptions = options
        check_decoding(options)
        read_risk(options, self._utility)
        compilation_cache.use(options.compilation_cache)
        self._devices: tuple[jax.Device, ...] = ()
        if isinstance(models, DecodeOptions) or options.chooses_device:
            self._devices = devices.start_all(
                options.cpu_threads, options.devices, options.cpu_devices, options.local_index
            )
        precision = products_in(options)
        self.models = [
            load_model(
                path,
                options=described_model(options),
                ignore_config=options.ignore_model_config,
                marian_exact=options.marian_exact,
                precision=precision,
                vocabs=options.vocabs,
            )
            for path in options.models
        ]
        *self.source_vocabs, self.target_vocab = load_vocabs(
            options.vocabs,
            _dims(self.models),
            owner=", ".join(options.models),
            pieces=options.pieces,
            input_types=self.models[0].options.stream_types,
            no_spm_encode=options.no_spm_encode,
            no_spm_decode=options.no_spm_decode,
        )
        if self.models[0].options.stream_types[-1:] == ("class",):
            raise OptionError(
                "--models: this model's target is a label of a class (input-types), not a translation; "
                "mgraph score gives the probability of a label"
            )
        for path, model in zip(options.models, self.models, strict=True):
            vocabs_of_model = [*self.source_vocabs[: model.sources], self.target_vocab]
            check_agreement(path, vocabs_of_model, model.options)
        self._arrange()

    def _arrange(self) -> None:
        """Make the encoder of lines, the search and the printing that the options ask for."""
        self._seen = 0
        options, right_left = self.options, _right_left(self.models)
        forced = [self.target_vocab] if options.force_decode else []
        self.encoder = LineEncoder(
            [*self.source_vocabs, *forced],
            options.max_length,
            options.max_length_crop,
            right_left,
            options.tsv,
        )
        self.search = self._search(self.models[0].dim_vocabs[-1])
        self.service = TranslationService(
            self.search,
            Printing(options.n_best, options.word_scores, read_alignment(options.alignment)),
            right_left=right_left,
            forced=options.force_decode,
            risk=read_risk(options, self._utility),
        )
        self._encoding = FewBatches(options.mini_batch, options.mini_batch_words, KEPT_NUMBERS)
        self._check_combinations()

    def __repr__(self) -> str:
        models = ", ".join(map(repr, self.models))
        vocabs = ", ".join(map(repr, [*self.source_vocabs, self.target_vocab]))
        return f"Translator({models}; {vocabs}; beam_size={self.options.beam_size})"

    def _beside_options(self) -> dict[str, Any]:
        return {"mbr": self._utility or ""}

    def with_options(self, *, mbr: str | Utility | None = None, **given: Any) -> Translator:
        """The same models and vocabularies with other options for lines, search and printing.

        mbr: as when a Translator is made; ``""`` for none.

        Nothing is loaded again. OptionError for an invalid value, and for an option that matters only when
        models are loaded, such as ``vocabs`` or ``precision``; TypeError for an unknown option.
        """
        loading = [name for name in given if name in _OF_LOADING]
        if loading:
            raise OptionError(f"--{loading[0].replace('_', '-')} takes effect only when a Translator is made")
        utility = self._utility
        if mbr is not None:
            utility = mbr if callable(mbr) else None
            given["mbr"] = "" if callable(mbr) else mbr
        options = DECODE.changed(self.options, given)
        check_decoding(options)
        other = object.__new__(type(self))
        vars(other).update(vars(self), options=options, _utility=utility)
        other._arrange()
        return other

    @classmethod
    def from_config(cls, path: Path, **options: Unpack[OverrideKeywords]) -> Translator:
        """From a ``decoder.yml``, overridden by ``options``."""
        return cls(**{**DECODE.from_config(path_text(path)), **options})

    @classmethod
    def from_dir(cls, path: Path, config: str = "", **options: Unpack[OverrideKeywords]) -> Translator:
        """From a directory made by OPUS-MT, Firefox Translations or Marian's training.

        config: the configuration to use if there are several; ``options`` override it. Layouts and errors:
        see ``nmt.files.directories`` and its ``read_directory``.
        """
        return cls(**read_directory(path, config, **options))

    @overload
    def translate(self, *texts: Lines) -> list[str]: ...
    @overload
    def translate(
        self,
        *texts: Lines,
        return_attention: Literal[True],
        return_scores: bool = False,
        n_best: int | None = None,
    ) -> list[Translation]: ...
    @overload
    def translate(
        self,
        *texts: Lines,
        return_attention: bool = False,
        return_scores: Literal[True],
        n_best: int | None = None,
    ) -> list[Translation]: ...
    @overload
    def translate(
        self, *texts: Lines, return_attention: bool = False, return_scores: bool = False, n_best: int
    ) -> list[Translation]: ...
    @overload
    def translate(
        self,
        *texts: Lines,
        return_attention: bool = False,
        return_scores: bool = False,
        n_best: int | None = None,
    ) -> list[str] | list[Translation]: ...
    def translate(
        self,
        *texts: Lines,
        return_attention: bool = False,
        return_scores: bool = False,
        n_best: int | None = None,
    ) -> list[str] | list[Translation]:
        """Translate lines: one string for each, in order, as ``mgraph decode`` prints it.

        That is the best translation, with alignment and word scores if ``alignment`` and ``word_scores`` are
        set, or with the option ``n_best`` the whole list as one string with a line for each entry.

        With any of the arguments, returns a ``Translation`` for each line instead: with scores, the
        ``n_best`` best translations (at most ``beam_size``, or ``mbr_samples`` if set; None for the option's
        number), and with ``return_attention`` their attention to the words of the first source.

        OptionError for a wrong number of texts and an ``n_best`` out of this range, ParallelTextError for
        texts that differ in length.
        """
        found = self._translations(texts, return_attention, n_best, at_once=True)
        if return_attention or return_scores or n_best is not None:
            return list(found)
        return [self.format(translation) for translation in found]

    def translations(
        self,
        *texts: Lines,
        return_attention: bool = False,
        n_best: int | None = None,
        first: int | None = None,
        done: int = 0,
    ) -> Iterator[Translation]:
        """Translate a stream of lines, in order, each as soon as it is ready.

        Reads ``mini_batch * maxi_batch`` lines at a time. Arguments as for ``translate``. ParallelTextError
        if one text has fewer lines than another, after the preceding lines.

        first: the number of the first line, for part of a longer text; ``output_sampling`` then draws by line
        number, otherwise by how many lines this object has translated. done: number of lines to skip.
        OptionError unless both are whole numbers from 0.
        """
        return self._translations(texts, return_attention, n_best, first=first, done=done)

    def encode(self, lines: Lines, *, source: int = 0, model: int = 0) -> States:
        """The encoder states of the words of lines, and their mask, computed in batches.

        source: the number of the lines' source stream. model: the number of the model in the ensemble.
        Returns ``states [line, word, dim]`` and ``mask [line, word]``, float32, padded with zeros.
        OptionError for a model or source that does not exist, and for lines that are too long.
        """
        source, model = whole_number("source", source), whole_number("model", model)
        if model >= len(self.models):
            raise OptionError(f"model {model} does not exist: there are {len(self.models)} model(s)")
        chosen = self.models[model]
        if source >= chosen.sources:
            raise OptionError(f"source {source} does not exist: the model has {chosen.sources} source(s)")
        encoder = replace(self.encoder, vocabs=[self.source_vocabs[source]], tsv=False)
        samples = [encoder.sentence(number, [line]) for number, line in enumerate(read_lines(lines))]
        for sample in samples:
            if sample.problem:
                raise OptionError(f"line {sample.line + 1}: {sample.problem}")
        if not samples:
            raise OptionError("encode needs at least one line")
        sentences = [sample.sequences[0] for sample in samples]
        return encode_sentences(chosen, sentences, source, self._encoding)

    def format(self, translation: Translation) -> str:
        """The text that ``mgraph decode`` prints for a translation, in Marian's format; OptionError for
        anything but a result of ``translations``."""
        return self.service.printing.lines(_translation(translation))

    def format_best(self, translation: Translation) -> str:
        """The text of the best translation alone, as in the log; OptionError as in ``format``."""
        return self.service.printing.best(_translation(translation))

    def require_inputs(self, number: int) -> None:
        """OptionError unless ``number`` is the expected number of texts."""
        names = self.names
        needed = 1 if self.options.tsv else len(names)
        if number != needed:
            what = "fields separated by tabs" if self.options.tsv else ", ".join(names)
            raise OptionError(f"--input: {needed} text(s) are needed ({what}), got {number}")

    def rows(self, texts: Sequence[Lines], done: int = 0) -> ParallelLines:
        """The rows of the texts, without the first ``done``; OptionError for a wrong number of texts."""
        self.require_inputs(len(texts))
        return ParallelLines(texts, self.names[: len(texts)], done)

    def count(self, n_best: int | None) -> int:
        """How many hypotheses of a line are returned for this ``n_best``; OptionError for a bad one."""
        options = self.options
        name = "mbr_samples" if options.mbr_samples else "beam_size"
        most = getattr(options, name)
        if n_best is None:
            return most if options.n_best else 1
        if not (type(n_best) is int and 1 <= n_best <= most):
            raise OptionError(f"n_best must be from 1 to {name}={most}, got {n_best!r}")
        return n_best

    @property
    def names(self) -> list[str]:
        """The names of the texts, or of the fields of a line."""
        names = source_names(len(self.source_vocabs))
        return [*names, "prefix"] if self.options.force_decode else names

    def _search(self, dim: int) -> BeamSearch:
        options, samples = self.options, self.options.mbr_samples
        shortlist = None
        if options.shortlist:
            shared = options.vocabs[0] == options.vocabs[-1]
            vocabs = self.source_vocabs[0], self.target_vocab
            shortlist = load_shortlist(options.shortlist, *vocabs, size=dim, shared=shared)
        return BeamSearch(
            self.models,
            options.weights,
            source_vocab=self.source_vocabs[0],
            target_vocab=self.target_vocab,
            shortlist=shortlist,
            sampling=read_sampling(options.output_sampling) or (Sampling() if samples else None),
            options=replace(options, beam_size=1) if samples else options,
            allow_special=options.allow_special,
            skip_cost=options.skip_cost,
            n_best=options.n_best,
            seed=options.seed,
            searches=searches_at_once(options.cpu_threads, len(self._devices)),
            devices=self._devices,
        )

    def _check_combinations(self) -> None:
        options = self.options
        fields = options.tsv_fields
        if options.tsv and fields not in (0, len(self.names)):
            raise OptionError(f"--tsv-fields: {len(self.names)} are needed, got {fields}")
        if self.service.printing.alignment is not None:
            self.search.require_attention()
        if options.force_decode:
            self.search.require_prefixes()
        if self.search.rules.sampling is not None and self.search.beam_size > 1:
            logger.warning(
                "--output-sampling with --beam-size %d is a stochastic beam search; 1 draws translations",
                options.beam_size,
            )

    def _translations(
        self,
        texts: Sequence[Lines],
        attention: bool,
        n_best: int | None,
        *,
        at_once: bool = False,
        first: int | None = None,
        done: int = 0,
    ) -> Iterator[Translation]:
        """The translations; with ``at_once`` all lines are read before the first is translated."""
        done = whole_number("done", done)
        rows, count = self.rows(texts, done), self.count(n_best)
        before = self._seen if first is None else 0
        start = whole_number("first", first or 0) + done
        finished: InOrder[Translation] = InOrder(start)
        samples = (self.encoder.sentence(number, row) for number, row in enumerate(rows, start))
        groups = (
            [list(samples)]
            if at_once
            else windows(samples, self.options.mini_batch * self.options.maxi_batch)
        )
        for group in groups:
            check_process()  # otherwise a fork would wait for the threads of the searches
            numbers = [before + sample.line for sample in group]
            for translation in self.service.translate(
                group, numbers=numbers, attention=attention, count=count
            ):
                self._seen = max(self._seen, before + translation.line + 1)
                finished.add(translation.line, translation)
                yield from finished.take()
        rows.check()


def check_decoding(options: DecodeOptions) -> None:
    """Check the options before a device is started or a model is loaded: OptionError for invalid values,
    OSError for a file that cannot be read."""
    require_files("--models", options.models, options.vocabs)
    products_in(options)
    read_alignment(options.alignment)
    read_sampling(options.output_sampling)
    check_weights(options.weights, len(options.models))
    require_readable("--models", options.models)
    require_readable("--vocabs", options.vocabs)
    require_readable("--pieces", options.pieces)
    require_readable("--shortlist", options.shortlist[:1])
    if options.shortlist and options.vocabs[-1].endswith(ENDING):
        raise OptionError(f"--shortlist cannot go with a factored target vocabulary ({ENDING})")


def _dims(models: Sequence[Model]) -> list[int]:
    """The vocabulary sizes of the sources and the target; 0 for a source that no model reads."""
    dims = []
    for stream in range(max(1, *(model.sources for model in models))):
        sizes = {model.dim_vocabs[stream] for model in models if model.sources > stream}
        if len(sizes) > 1:
            raise OptionError(
                f"--models: models of an ensemble need the same source vocabulary, got {sorted(sizes)} words"
            )
        dims.append(sizes.pop() if sizes else 0)
    return [*dims, models[0].dim_vocabs[-1]]


def _right_left(models: Sequence[Model]) -> bool:
    """Whether the models are right-to-left."""
    directions = {bool(model.options.right_left) for model in models}
    if len(directions) > 1:
        raise OptionError("--models: left-to-right and right-to-left models cannot go together")
    return directions.pop()


def _translation(value: Any) -> Translation:
    """``value`` if it is a translation, else OptionError."""
    if not isinstance(value, Translation):
        raise OptionError(f"translation must be a Translation, from translations(...), got {value!r:.80}")
    return value
