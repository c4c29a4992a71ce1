"""``mgraph demo``: a graph, its gradients checked, and real translations, in under two minutes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import mgraph
from mgraph import ExpressionGraph, inits
from nmt import numbers
from nmt.search.translator import Translator

REQUIRED_ACCURACY = 0.98
BATCH = 50


def run(sentences: int) -> bool:
    """Run the demo and translate ``sentences`` sentences; returns whether everything is right."""
    started = time.perf_counter()
    print(f"mgraph {mgraph.__version__}\n")
    right = show_graph() and show_translations(sentences)
    print(f"\nDone in {time.perf_counter() - started:.0f} s.")
    return right


def show_graph() -> bool:
    """Marian's worked example: z = x*y + sin(x), its value, its gradient, three witnesses."""
    print("1. The graph of Marian's tutorial: z = x*y + sin(x) with x = 2, y = 3")
    graph = ExpressionGraph()
    x = graph.param("x", (1, 1), inits.from_value(2))
    y = graph.constant((1, 1), inits.from_value(3))
    z = x * y + mgraph.sin(x)
    graph.backprop()
    print(f"   z = {z.scalar():.4f}   dz/dx = {float(x.grad()[0, 0]):.5f}")
    report = mgraph.check_gradients(z)
    print("\n2. The hand-written gradient against jax.grad and finite differences")
    print("   " + str(report).replace("\n", "\n   "))
    return report.ok


def show_translations(count: int, progress: Callable[[str], None] | None = None) -> bool:
    """English number words to German with the shipped Marian model, on numbers it was not trained on."""
    show = progress or _print_over
    print("\n3. A model that Marian trained translates English number words into German")
    folder = numbers.model_dir()
    vocab = str(folder / "vocab.spm")
    translator = Translator(
        str(folder / "model.npz"), [vocab, vocab], beam_size=4, normalize=0.6, mini_batch=BATCH, maxi_batch=10
    )
    pairs = numbers.heldout(count)
    began = time.perf_counter()
    correct = 0
    translations = translator.translations([english for _, english, _ in pairs])
    for done, ((number, english, german), found) in enumerate(zip(pairs, translations, strict=True), 1):
        correct += found.text == german
        if done % (count // 5 or 1) == 0:
            show("")
            print(f"   {number:>7,}  {english}\n            -> {found.text}")
        show(f"   {done} of {count} translated, {correct} exactly right")
    accuracy = correct / max(count, 1)
    seconds = time.perf_counter() - began
    show("")
    print(
        f"   {correct} of {count} held-out numbers exactly right ({accuracy:.1%}) in {seconds:.1f} s, "
        f"{mgraph.compile_stats().compile_seconds:.1f} s of that in the compiler"
    )
    return accuracy >= REQUIRED_ACCURACY


def _print_over(text: str) -> None:
    """Overwrite the line of progress, on a terminal only."""
    if sys.stdout and sys.stdout.isatty():
        print(f"\r\x1b[2K{text}", end="", flush=True)
