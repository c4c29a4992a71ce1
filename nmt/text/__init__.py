"""Text in and out: parallel lines, sentences of word ids, batches, shapes, Marian's output formats.

Only batching differs: translation batches lines as they come (``Batching.maxi_batches``), training batches
an ordered corpus (``Corpus``, ``Batching.marian_batches``).
"""
