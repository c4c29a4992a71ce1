"""Text in and out: lines side by side, sentences of word ids, batches, shapes, Marian's output formats.

Translating and training share all but the way to batches: translating takes lines as they come
(``Batching.maxi_batches``), training an ordered corpus (``Corpus``, ``Batching.marian_batches``).
"""
