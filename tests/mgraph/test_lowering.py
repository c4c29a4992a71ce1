"""Programs for CUDA and TPU, lowered where neither is: all operators, an update of training, a search."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import pytest

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, Node, Type
from mgraph.cases import Case
from mgraph.gradcheck.check import record_case
from mgraph.gradcheck.survey import own_operators
from mgraph.running.programs import Program
from nmt import Translator, numbers
from nmt.files import create_model
from nmt.models import Dropouts, Model
from nmt.settings.model_options import ModelOptions
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.step import UpdateStep
from tests.helpers.placements import batch

pytestmark = pytest.mark.slow

PLATFORMS = ("cuda", "tpu")
OPERATORS = [cls for cls in own_operators() if cls.cases]
Recorded = list[tuple[Callable[..., Any], tuple[Any, ...]]]


def lowered(function: Callable[..., Any], *arguments: Any) -> dict[str, str]:
    """The program for each platform, as text, which has none of the barriers that CPUs need."""
    jitted = jax.jit(function)
    texts = {p: jax.export.export(jitted, platforms=[p])(*arguments).mlir_module() for p in PLATFORMS}
    assert [p for p, text in texts.items() if "optimization_barrier" in text] == []
    return texts


def recorded(operator: type[NaryNodeOp], case: Case) -> tuple[ExpressionGraph, Node]:
    """A case of an operator in float32, and one node to differentiate."""
    graph = ExpressionGraph()
    top, _ = record_case(graph, operator, case, case.values(), "float32")
    return graph, mgraph.get(top, 0) if isinstance(top.spec, tuple) else top


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda cls: cls.__name__)
def test_an_operator_forward_and_backward(operator: type[NaryNodeOp]) -> None:
    for case in operator.cases:
        graph, top = recorded(operator, case)
        function = graph.function(top)
        wide = top.value_type.is_wide

        def total(params: dict[str, Any], function: Any = function) -> Any:
            y = function.pure(params)
            return (jnp.sum(y) if jnp.issubdtype(y.dtype, jnp.floating) else 0.0), y

        with jax.enable_x64(wide):
            lowered(jax.value_and_grad(total, has_aux=True), graph.params().vals())


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The programs that are run, with their arguments."""
    found: Recorded = []
    run = Program.run

    def noting(self: Program, function: Callable[..., Any], *arguments: Any) -> Any:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), arguments)
        found.append((function, shapes))
        return run(self, function, *arguments)

    monkeypatch.setattr(Program, "run", noting)
    return found


def products(text: str) -> list[str]:
    """The element types of the first operands of all products."""
    return re.findall(r"stablehlo\.dot_general.*?: \(tensor<(?:\d+x)*(\w+)>", text)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_an_update_of_a_bfloat16_transformer(attention_dropout: float, run_here: Recorded) -> None:
    options = ModelOptions(
        type="transformer",
        dim_vocabs=(24, 28),
        dim_emb=16,
        enc_depth=1,
        dec_depth=1,
        transformer_heads=2,
        transformer_dim_ffn=24,
    )
    created = create_model(options, seed=4)
    model = Model(
        created.options, created.params, Dropouts(transformer=0.1, transformer_attention=attention_dropout)
    )
    objective = Objective(model, LossOptions(0.1), Type.bfloat16)
    learner = Learner(objective, UpdateStep(mgraph.Adam(0.001)), seed=7)
    learner.update([batch(6, 0)], learn_rate=0.001, number=1)
    gradient, update = run_here
    texts = lowered(gradient[0], *gradient[1])
    for text in texts.values():
        found = products(text)
        assert found.count("bf16") > 40 and set(found) == {"bf16"}
    lowered(update[0], *update[1])


@pytest.mark.usefixtures("quick_compilation")
def test_the_search_of_a_translator(run_here: Recorded) -> None:
    folder = numbers.model_dir()
    vocab = str(folder / "vocab.spm")
    translator = Translator(str(folder / "model.npz"), [vocab, vocab], beam_size=4)
    assert translator.translate(["twenty-one", "three hundred"])
    programs = list(run_here)
    assert len(programs) > 1
    for function, arguments in programs:
        texts = lowered(function, *arguments)
    assert all("stablehlo.while" in text for text in texts.values())
