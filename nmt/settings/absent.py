"""What Marian has and mgraph lacks: the reasons, which errors and ``mgraph options --refused`` print."""

from __future__ import annotations

from collections.abc import Mapping

NO_ALIBI = (
    "only Marian's transformer-new has it, in a form that Marian calls experimental, whose slopes and shifts "
    "differ from the paper's"
)
NO_BERT = "BERT models do not translate; HuggingFace's Transformers trains them"
NO_CHARACTERS = (
    "Marian has its character convolutions only in builds with cuDNN; type s2s with a vocabulary of "
    "characters reads characters, too"
)
NO_COMET = "mgraph evaluate scores with metrics of the COMET family; unbabel-comet trains them"
NO_EMBEDDER = "mgraph trains translation models, not sentence encoders"
NO_ENCRYPTION = "Marian reads encrypted models only if built for it; encrypt the model's folder instead"
NO_FACTOR_WEIGHT = "in the cost, factors of factored vocabularies (.fsv) weigh as much as lemmas"
NO_LEMMA_DEPENDENCY = "factors of factored vocabularies (.fsv) are predicted independently of the lemma"
NO_CONCATENATION = "the embeddings of factors are summed; concatenating them would change the sizes of layers"
NO_FBGEMM = (
    "it is for FBGEMM's packed matrices, which suit one kind of processor; --precision int8 multiplies "
    "integers on any kind"
)
NO_JOINING = "only Marian's metric models read several fields as one sequence; join texts with a separator"
NO_LSH = "approximate search is for processors that multiply slowly; --shortlist shrinks the same product"
NO_NAN_SEARCH = "Marian looks for NaN in training only"
NO_TRACKING = "Marian stops with an error, too: it asks its authors to review this first"
NO_ULR = "multilingual models can share one subword vocabulary among all languages, without given vectors"

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
