"""The training corpus: from files of sentences to padded batches."""

from __future__ import annotations

from nmt.corpus.batch import TrainingBatch as TrainingBatch
from nmt.corpus.corpus import Corpus as Corpus
from nmt.corpus.errors import CorpusError as CorpusError
from nmt.corpus.report import EpochReport as EpochReport
from nmt.corpus.shapes import Sizes as Sizes
