"""The student's vocabulary, architecture and training."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.settings import TRAIN, OptionError
from nmt.settings.distillation import DistillOptions
from nmt.text.parallel import Row
from nmt.text.vocabs.base import as_text
from nmt.text.vocabs.creation import create_vocab
from nmt.text.vocabs.pieces import TAG

ARCHITECTURE: Mapping[str, Any] = {
    "type": "transformer",
    "dim_emb": 256,
    "enc_depth": 6,
    "dec_depth": 2,
    "transformer_heads": 8,
    "transformer_dim_ffn": 1536,
    "transformer_ffn_activation": "relu",
    "transformer_decoder_autoreg": "rnn",
    "dec_cell": "ssru",
}
"""A transformer with a decoder of simpler simple recurrent units (Kim et al. 2019), like Firefox's."""

TRAINING: Mapping[str, Any] = {
    "cost_type": "ce-mean-words",
    "mini_batch": 128,
    "maxi_batch": 100,
    "learn_rate": 0.0003,
    "lr_warmup": "16000",
    "lr_decay_inv_sqrt": ("32000",),
    "optimizer_params": (0.9, 0.98, 1e-9),
    "clip_norm": 0.0,
    "exponential_smoothing": 0.0001,
    "save_freq": "5000u",
    "valid_freq": "5000u",
    "valid_metrics": ("chrf", "ce-mean-words"),
    "overwrite": True,
}

CHOSEN = (
    *("model", "train_sets", "vocabs", "valid_sets", "guided_alignment", "pretrained_model"),
    "input_types",
    *("devices", "cpu_devices", "coordinator", "num_processes", "process_id"),
)
"""The options that a configuration of the student may not set: its files, what they hold, and where it is
trained."""


def learn_vocab(
    path: Path, rows: Callable[[], Iterable[Row]], pieces: int, languages: Collection[str] = (), seed: int = 1
) -> None:
    """Learn a vocabulary of SentencePiece pieces from both sides of a corpus.

    rows: reads its pairs; called twice if there are languages. pieces: how many. languages: the teacher's
    language tokens (``>>fra<<``); those in the corpus become pieces. seed: for the sample of lines that
    ``create_vocab`` learns from. VocabError with SentencePiece's message, such as that there is too little
    text for so many pieces.
    """
    tagged = rows() if languages else ()
    tokens = {token for source, _ in tagged for token in TAG.findall(as_text(source))}.intersection(languages)
    options = f"--user_defined_symbols={','.join(sorted(tokens))}" if tokens else ""
    create_vocab(path, chain.from_iterable(rows()), pieces, options=options, seed=seed)


def training_options(
    options: DistillOptions, vocabs: tuple[str, ...], corpus: tuple[Path, Path], links: Path
) -> dict[str, Any]:
    """The options of the student's training: the defaults, then the configuration ``--student``.

    vocabs: the student's, for source and target. corpus: the text to train on. links: its word alignments.
    The layers of the decoder are tied to the first. All embeddings are tied if source and target share a
    vocabulary, else those of the target.
    """
    shared = vocabs[0] == vocabs[-1] or os.path.samefile(vocabs[0], vocabs[-1])
    given = TRAIN.from_config(options.student) if options.student else {}
    for name in CHOSEN:
        if name in given:
            raise OptionError(f"{options.student}: {name.replace('_', '-')} is chosen by mgraph distill")
    embeddings = {"tied_embeddings_all" if shared else "tied_embeddings": True}
    made = {**ARCHITECTURE, **embeddings, **TRAINING, "after": options.after, **given}
    made.setdefault("transformer_tied_layers", (1,) * made["dec_depth"])
    made |= {
        "train_sets": tuple(map(str, corpus)),
        "vocabs": vocabs,
        "valid_sets": options.valid_sets,
        "guided_alignment": str(links) if options.guided_alignment else "none",
    }
    if not options.valid_sets:
        made = {name: value for name, value in made.items() if not name.startswith("valid_")}
    return made


def tuning_options(options: DistillOptions, training: Mapping[str, Any], student: Path) -> dict[str, Any]:
    """The options of fine-tuning: the options of training, but starting from the trained ``student``, and
    with parameters rounded to integers after each update."""
    return {
        **training,
        "pretrained_model": str(student),
        "quantize_bits": options.quantize_bits,
        "exponential_smoothing": 0.0,
        "learn_rate": options.tune_learn_rate,
        "lr_warmup": "0",
        "lr_decay_inv_sqrt": ("0",),
        "after": options.tune_after,
    }
