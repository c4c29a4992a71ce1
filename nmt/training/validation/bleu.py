"""BLEU and chrF of translations of the validation set."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.training.schedule.state import TrainingState
from nmt.training.validation import segments
from nmt.training.validation.evaluation import Evaluation
from nmt.training.validation.log import Announcements, valid_log
from nmt.training.validation.metric import Metric
from nmt.training.validation.ngrams import NGramCounts
from nmt.training.validation.translation import OutputName

TEXT_METRICS = ("bleu", "bleu-detok", "bleu-segmented", "chrf")
ORDERS = {"chrf": 6}
BLEU_ORDER = 4


class TextMetric(Metric):
    """``bleu`` (``bleu-detok`` is the same), ``bleu-segmented`` and ``chrf``; higher is better.

    They compare with the targets of the validation set as the model reads them: cut to
    ``--valid-max-length``, unknown words being ``<unk>``. ``bleu`` compares words, after sacreBLEU's
    tokenization and with each Chinese, Japanese or Thai character alone, if the vocabulary is one of pieces
    (SentencePiece); with other vocabularies words are what they list. ``bleu-segmented`` compares these or
    the pieces as they are, and ``</s>`` of the translations with them. ``chrf`` compares characters other
    than spaces.

    vocab: of the target. quiet: log no sample of what is compared (``--quiet-validation``).
    announcements: what was logged before.

    Source: Marian, ``--valid-metrics``. The numbers are sacreBLEU's for the same segments, except ``chrf``
    with references of fewer than six characters: there sacreBLEU leaves out the longer n-grams of the
    translation.
    """

    def __init__(
        self,
        kind: str,
        epsilon: float,
        vocab: Vocab,
        output: OutputName,
        *,
        quiet: bool = False,
        announcements: Announcements | None = None,
    ) -> None:
        super().__init__(kind, epsilon)
        self.vocab, self.output, self.quiet = vocab, output, quiet
        self.announcements = announcements or Announcements()

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        counts = NGramCounts(ORDERS.get(self.kind, BLEU_ORDER))
        for translation in evaluation.translations():
            ours = translation.hypotheses[0].words
            theirs = tuple(evaluation.data.samples[translation.line].sequences[-1])
            theirs = theirs[: theirs.index(self.vocab.eos_id)]
            self._announce(ours, theirs)
            if self.kind == "bleu-segmented":
                counts.add(ours, theirs)
            else:
                counts.add(self.segments(ours), self.segments(theirs))
        if path := self.output.of(state):
            evaluation.write(path, n_best=False)
        return counts.chrf() if self.kind == "chrf" else counts.bleu()

    def segments(self, ids: Sequence[int]) -> Sequence[str]:
        """What is compared of the words ``ids``."""
        text = self.vocab.decode(ids)
        name = type(self.vocab).__name__
        if isinstance(self.vocab, SentencePieceVocab):
            if self.announcements.first("segments"):
                valid_log.info("Decoding validation set with %s for scoring", name)
            text = segments.tokenized(text)
        elif self.announcements.first("segments"):
            valid_log.info("%s keeps original segments for scoring", name)
        if self.kind == "chrf":
            return segments.characters(text)
        if isinstance(self.vocab, SentencePieceVocab):
            text = segments.separated(text)
        return segments.words(text)

    def _announce(self, ours: Sequence[int], theirs: Sequence[int]) -> None:
        if self.vocab.unk_id in theirs and self.announcements.first("unknown"):
            valid_log.info("References contain unknown word, metric scores may be inaccurate")
        if not self.quiet and self.announcements.first("sample"):
            valid_log.info("First sentence's tokens as scored:")
            valid_log.info("  Hyp: %s", " ".join(self.segments(ours)))
            valid_log.info("  Ref: %s", " ".join(self.segments(theirs)))
