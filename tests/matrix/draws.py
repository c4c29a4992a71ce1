"""Rows drawn at random: combinations of options that no one thought of."""

from __future__ import annotations

import random

from .row import Row

# The values of each option; ON is an option without a value, OFF omits the option.
ON, OFF = "", None
Choices = dict[str, tuple[str | None, ...]]

COMMON: Choices = {
    "--dim-emb": ("16", "16", "24"),
    "--layer-normalization": (OFF, ON),
    "--output-omit-bias": (OFF, OFF, OFF, ON),
    "--right-left": (OFF, OFF, OFF, ON),
    "--enc-depth": ("1", "2", "3"),
    "--dec-depth": ("1", "2", "3"),
    "--dim-vocabs": (OFF, OFF, OFF, "25 20"),
}
TIED = ("--tied-embeddings", "--tied-embeddings-src", "--tied-embeddings-all", "", "")
CELLS = ("gru", "gru", "lstm", "lstm", "gru-nematus", "mlstm", "mgru", "tanh", "relu")
RECURRENT: Choices = {
    "--dim-rnn": ("16", "24", "32"),
    "--enc-type": ("bidirectional", "bi-unidirectional", "alternating"),
    "--enc-cell": CELLS,
    "--dec-cell": CELLS,
    "--enc-cell-depth": ("1", "1", "2", "3"),
    "--dec-cell-base-depth": ("1", "2", "2", "3", "4"),
    "--dec-cell-high-depth": ("1", "1", "2", "3"),
    "--skip": (OFF, ON),
    "--dropout-rnn": (OFF, "0.1"),
}
ACTIVATIONS = ("swish", "relu", "gelu", "sigmoid")
TRANSFORMER: Choices = {
    "--transformer-heads": ("1", "2", "4", "8"),
    "--transformer-dim-ffn": ("24", "16", "40"),
    "--transformer-decoder-dim-ffn": (OFF, OFF, "32"),
    "--transformer-ffn-depth": ("1", "2", "2", "3"),
    "--transformer-decoder-ffn-depth": (OFF, OFF, "1", "2"),
    "--transformer-ffn-activation": ACTIVATIONS,
    "--transformer-preprocess": (OFF, "n", "dn", "r", "nd"),
    "--transformer-postprocess": ("dan", "da", "dar", "dhn", "an", "hr"),
    "--transformer-postprocess-emb": ("d", "n", "dn", "r"),
    "--transformer-postprocess-top": (OFF, "n", "dan", "r", "dn"),
    "--transformer-decoder-autoreg": ("self-attention", "self-attention", "average-attention", "rnn", "rnn"),
    "--dec-cell": ("ssru", "ssru", "sru", *CELLS),
    "--transformer-rnn-projection": (OFF, ON),
    "--transformer-dim-aan": ("16", "24", "40"),
    "--transformer-aan-depth": ("1", "2", "3"),
    "--transformer-aan-activation": ACTIVATIONS,
    "--transformer-aan-nogate": (OFF, OFF, ON),
    "--transformer-no-projection": (OFF, OFF, OFF, ON),
    "--transformer-depth-scaling": (OFF, ON),
    "--transformer-pool": (OFF, OFF, OFF, OFF, ON),
    "--transformer-disable-position-embeddings": (OFF, OFF, OFF, ON),
    "--transformer-dropout": (OFF, "0.1"),
}
MIXED: Choices = {
    option: values
    for option, values in {**TRANSFORMER, **RECURRENT}.items()
    if option != "--transformer-pool"
}
TYPES: dict[str, Choices] = {
    "s2s": RECURRENT,
    "amun": {"--dim-rnn": ("16", "32"), "--dropout-src": (OFF, "0.1")},
    "nematus": {**RECURRENT, "--enc-cell": ("gru-nematus",), "--dec-cell": ("gru-nematus",)},
    "multi-s2s": RECURRENT,
    "shared-multi-s2s": RECURRENT,
    "lm": RECURRENT,
    "transformer": TRANSFORMER,
    "multi-transformer": TRANSFORMER,
    "shared-multi-transformer": TRANSFORMER,
    "lm-transformer": TRANSFORMER,
    "transformer_s2s": MIXED,
    "transformer-new": TRANSFORMER,
}
OFTEN = ("s2s", "transformer", "transformer")


def draw(count: int, seed: int) -> list[Row]:
    """Draw ``count`` rows, the same for the same seed; Marian may refuse some."""
    generator = random.Random(seed)
    return [_row(generator, f"random-{seed}-{number}") for number in range(count)]


def _row(generator: random.Random, name: str) -> Row:
    kind = generator.choice((*OFTEN, *TYPES))
    words = ["--type", kind]
    for option, values in (COMMON | TYPES[kind]).items():
        value = generator.choice(values)
        if option == "--dim-vocabs" and (value is None or kind != "s2s"):
            continue
        if value is not None:
            words += [option, *value.split()]
    tied = generator.choice(TIED)
    words += [tied] if tied else []
    depth = int(words[words.index("--dec-depth") + 1])
    if "transformer" in kind and depth > 1 and generator.random() < 0.2:
        words += ["--transformer-tied-layers", *(str(1 + layer // 2) for layer in range(depth))]
    return Row(name, " ".join(words))
