"""Names that other toolkits have for Marian's options and for commands, for hints in error messages."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    "after-batches": "max-update max-updates max-steps train-steps",
    "after-epochs": "epochs num-epochs num-train-epochs max-epoch max-epochs",
    "beam-size": "num-beams",
    "clip-norm": "clip-grad gradient-clipping max-grad-norm",
    "cpu-threads": "num-threads inter-threads intra-threads",
    "data-threads": "num-workers",
    "dec-depth": "decoder-layers dec-layers",
    "devices": "gpu gpus gpu-ids device-index",
    "dim-emb": "d-model hidden-size encoder-embed-dim word-vec-size",
    "dim-vocabs": "vocab-size src-vocab-size tgt-vocab-size",
    "disp-freq": "log-interval logging-steps report-every",
    "early-stopping": "patience",
    "enc-depth": "encoder-layers enc-layers num-layers",
    "learn-rate": "lr learning-rate",
    "lr-schedule": "lr-scheduler lr-scheduler-type decay-method",
    "lr-warmup": "warmup warmup-steps warmup-updates",
    "max-length": "max-source-length max-source-positions src-seq-length",
    "max-length-factor": "max-len-a max-new-tokens max-decoding-length",
    "mini-batch": "batch-size per-device-train-batch-size max-sentences",
    "mini-batch-words": "max-tokens",
    "n-best": "num-return-sequences",
    "normalize": "length-penalty lenpen",
    "optimizer": "optim",
    "optimizer-delay": "update-freq gradient-accumulation-steps accum-count",
    "optimizer-params": "adam-betas adam-eps adam-epsilon",
    "output-sampling": "do-sample sampling temperature sampling-temperature topk top-k top-p sampling-topk",
    "save-freq": "save-steps save-interval save-interval-updates save-checkpoint-steps",
    "tied-embeddings-all": "share-all-embeddings share-embeddings tie-embeddings tie-word-embeddings",
    "transformer-dim-ffn": "ffn-dim encoder-ffn-embed-dim transformer-ff",
    "transformer-dropout": "dropout",
    "transformer-heads": "heads num-heads num-attention-heads encoder-attention-heads",
    "type": "arch",
    "valid-freq": "eval-steps valid-steps validate-interval validate-interval-updates",
    "vocabs": "src-vocab tgt-vocab source-vocab target-vocab srcdict tgtdict",
}
MARIANS: Mapping[str, str] = {other: name for name, others in _NAMES.items() for other in others.split()}
"""Marian's option by the name that fairseq, HuggingFace's Transformers or OpenNMT has for it."""
COMMANDS: Mapping[str, str] = {
    "help": "--help",
    "marian": "train",
    "marian-conv": "convert",
    "marian-decoder": "decode",
    "marian-scorer": "score",
    "marian-vocab": "vocab",
    "rescore": "score",
    "translate": "decode",
    "translator": "decode",
    "version": "--version",
}
"""The command that does what another name says."""
