"""The recurrent encoder and decoder of Marian's ``s2s`` family."""

from __future__ import annotations

from nmt.models.s2s.decoder import S2SDecoder as S2SDecoder
from nmt.models.s2s.encoder import S2SEncoder as S2SEncoder
