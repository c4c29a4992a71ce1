"""A process that was forked while JAX was running gets an error at once, instead of waiting forever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import SHIPPED

SECONDS = 30

FORK = f"""
import os, signal, warnings
warnings.simplefilter("ignore")  # JAX warns of the fork itself

def forked(call):
    if os.fork() == 0:
        signal.alarm({SECONDS})
        try:
            print(call(), flush=True)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.wait()

import mgraph
from mgraph import ExpressionGraph, inits

def doubled():
    graph = ExpressionGraph()
    x = graph.param("x", (2,), inits.from_value(3))
    y = 2 * x
    graph.forward()
    return y.val().tolist()
"""


def run(code: str, *words: str) -> list[str]:
    """The lines that a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", FORK + code, *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=8 * SECONDS,
    )
    return done.stdout.splitlines()


def are_refusals(lines: list[str], count: int) -> bool:
    start = "DeviceError this process was forked from one in which JAX was running"
    return len(lines) == count and all(line.startswith(start) and '"spawn"' in line for line in lines)


def test_what_a_graph_runs_is_refused_in_a_fork() -> None:
    lines = run("""
graph = ExpressionGraph()
x = graph.param("x", (2,), inits.from_value(3))
top = mgraph.sum(2 * x, 0)
function = graph.function([top], [])
graph.backprop()
for call in doubled, function, lambda: mgraph.Adam(0.1).update(graph), graph.backprop:
    forked(call)
forked(lambda: forked(doubled))
""")
    assert lines.pop() == "None"  # printed by the child that forked another
    assert are_refusals(lines, 5)


@pytest.mark.thorough
def test_translator_queue_scorer_and_trainer_are_refused_in_a_fork(tmp_path: Path) -> None:
    code = """
import sys
from nmt import Scorer, Trainer, TranslationQueue, Translator
model, vocab, folder = sys.argv[1:]
translator = Translator(model, [vocab, vocab], beam_size=1)
scorer = Scorer(model, [vocab, vocab])
begun = translator.translations(["one", "two"])
print(next(begun).text)
forked(lambda: next(begun))
forked(lambda: translator.translate(["one"]))
forked(lambda: Translator(model, [vocab, vocab]).translate(["one"]))
forked(lambda: scorer.score(["one"], ["eins"]))
queue = TranslationQueue(translator)
forked(lambda: queue.translate(["one"]))
text = folder + "/text"
open(text, "w").write("one\\n")
forked(lambda: Trainer(model=folder + "/m.npz", train_sets=[text, text], vocabs=[vocab, vocab]).train())
"""
    first, *lines = run(code, str(SHIPPED / "model.npz"), str(SHIPPED / "vocab.spm"), str(tmp_path))
    assert first == "eins"
    assert are_refusals(lines, 6)


def test_a_process_that_was_forked_before_jax_ran_computes() -> None:
    assert run("forked(doubled)\nprint(doubled())\n") == ["[6.0, 6.0]", "[6.0, 6.0]"]
