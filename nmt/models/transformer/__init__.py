"""The encoder and decoder of Marian's ``transformer`` family."""

from __future__ import annotations

from nmt.models.transformer.decoder import TransformerDecoder as TransformerDecoder
from nmt.models.transformer.encoder import TransformerEncoder as TransformerEncoder
from nmt.models.transformer.new import NewNames as NewNames
