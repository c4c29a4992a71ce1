"""Text in and out: parallel lines, sentences of word ids, batches, shapes, Marian's output formats.

Commands differ only in batching: translation and scoring read lines as they arrive (``windows``), training
batches an ordered corpus (``Corpus``, ``Batching.marian_batches``).
"""
