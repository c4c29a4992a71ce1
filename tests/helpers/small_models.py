"""Options of models that are small and quickly made."""

from __future__ import annotations

from nmt.settings.model_options import ModelOptions

TRANSFORMER = ModelOptions(
    type="transformer",
    dim_vocabs=(11, 13),
    dim_emb=8,
    enc_depth=1,
    dec_depth=2,
    transformer_heads=2,
    transformer_dim_ffn=6,
)
S2S = ModelOptions(type="s2s", dim_vocabs=(11, 13), dim_emb=5, dim_rnn=6)
