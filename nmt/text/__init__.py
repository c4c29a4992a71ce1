"""Text in and out: parallel lines, sentences of word ids, batches, shapes, Marian's output formats.

Only batching differs: translation and scoring read lines as they come (``windows``), training batches
an ordered corpus (``Corpus``, ``Batching.marian_batches``).
"""
