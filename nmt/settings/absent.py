"""What Marian has and mgraph has not: the reasons, which errors and ``mgraph options --refused`` print."""

from __future__ import annotations

from collections.abc import Mapping

NO_ALIBI = (
    "only Marian's transformer-new has it, in a form that Marian calls experimental, with slopes and shifts "
    "that are not the paper's"
)
NO_BERT = (
    "BERT's masked words and segments are not translation; HuggingFace's Transformers trains such models"
)
NO_CHARACTERS = (
    "Marian has these convolutions only in builds with cuDNN; type s2s with a vocabulary of characters reads "
    "characters, too"
)
NO_COMET = "mgraph evaluate scores by metrics of the COMET family, unbabel-comet trains them"
NO_EMBEDDER = "mgraph trains translation models, not encoders of sentences"
NO_ENCRYPTION = (
    "Marian reads encrypted models only if it was built for that; a folder can be encrypted instead"
)
NO_FACTOR_WEIGHT = "factors of factored vocabularies (.fsv) cost as much as lemmas"
NO_LEMMA_DEPENDENCY = "factors of factored vocabularies (.fsv) are predicted independently of the lemma"
NO_CONCATENATION = "the embeddings of factors are added up; concatenated ones would give layers another size"
NO_FBGEMM = (
    "it is for FBGEMM's packed products, which fit one kind of processor; --precision int8 multiplies "
    "integers on any"
)
NO_JOINING = "only Marian's metrics read several fields as one sequence; text can be joined with a separator"
NO_LSH = "approximate search was made for processors that multiply slowly; --shortlist saves the same product"
NO_NAN_SEARCH = "Marian looks for NaN in training only"
NO_TRACKING = "Marian stops with an error, too: it asks its authors to review this first"
NO_ULR = "one vocabulary of pieces for all languages serves multilingual models, without given vectors"

TYPES: Mapping[str, str] = {
    "char-s2s": NO_CHARACTERS,
    "bert": NO_BERT,
    "bert-classifier": NO_BERT,
    "laser": NO_EMBEDDER,
    "laser-sim": NO_EMBEDDER,
    "comet-qe": NO_COMET,
    "comet": NO_COMET,
    "comet-unified": NO_COMET,
    "bleurt": NO_COMET,
}
"""Values of ``type``."""
METRICS: Mapping[str, str] = {
    "bert-lm-accuracy": NO_BERT,
    "bert-sentence-accuracy": NO_BERT,
    "embedding": NO_EMBEDDER,
}
"""Values of ``valid-metrics``."""
FBGEMM: Mapping[str, str] = dict.fromkeys(("packed16", "packed8avx2", "packed8avx512"), NO_FBGEMM)
"""Values of ``gemm-type``."""
