"""The probabilities of dropout that training sets."""

from __future__ import annotations

from dataclasses import dataclass

from mgraph import ArgumentError
from nmt.settings.training import Dropping


@dataclass(frozen=True)
class Dropouts:
    """What is dropped in training graphs; a model file says nothing of it.

    Each is a probability from 0 to 1: ``rnn`` is Marian's ``dropout-rnn``, ``src`` and ``trg`` (whole words)
    ``dropout-src`` and ``dropout-trg``, ``transformer`` ``transformer-dropout``, ``transformer_attention``
    ``transformer-dropout-attention``, ``transformer_ffn`` ``transformer-dropout-ffn``. ``ArgumentError`` for
    any other value.
    """

    rnn: float = 0.0
    src: float = 0.0
    trg: float = 0.0
    transformer: float = 0.0
    transformer_attention: float = 0.0
    transformer_ffn: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ArgumentError(f"dropout {name}: expected a probability from 0 to 1, got {value!r}")

    @classmethod
    def from_options(cls, options: Dropping) -> Dropouts:
        """Those that training options ask for."""
        return cls(
            options.dropout_rnn,
            options.dropout_src,
            options.dropout_trg,
            options.transformer_dropout,
            options.transformer_dropout_attention,
            options.transformer_dropout_ffn,
        )


NO_DROPOUT = Dropouts()
