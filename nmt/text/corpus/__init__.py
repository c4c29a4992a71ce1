"""The training corpus: from files of sentences to padded batches."""

from __future__ import annotations

from nmt.text.corpus.batch import TrainingBatch as TrainingBatch
from nmt.text.corpus.corpus import Corpus as Corpus
from nmt.text.corpus.errors import CorpusError as CorpusError
from nmt.text.corpus.report import EpochReport as EpochReport
from nmt.text.corpus.shapes import Sizes as Sizes
