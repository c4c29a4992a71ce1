"""Programs for CUDA and TPU, lowered without either device: all operators, a training update, a search."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import pytest

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, Node, Type
from mgraph.cases import Case
from mgraph.gradcheck.example import record_case
from mgraph.gradcheck.survey import own_operators
from mgraph.running.programs import Program
from nmt import Translator, numbers
from nmt.files import create_model
from nmt.models import Dropouts, Model
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch, pad
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.step import UpdateStep
from tests.helpers.placements import batch

pytestmark = pytest.mark.slow

PLATFORMS = ("cuda", "tpu")
OPERATORS = [cls for cls in own_operators() if cls.cases]
Recorded = list[tuple[Callable[..., Any], tuple[Any, ...]]]


def lowered(function: Callable[..., Any], *arguments: Any, wide: bool = False) -> dict[str, str]:
    """The text of the program for each platform; it must have none of the barriers that CPUs need, and no
    64-bit numbers unless it is ``wide``."""
    jitted, texts = jax.jit(function), {}
    for platform in PLATFORMS:
        exporting = jax.export.export(jitted, platforms=[platform], disabled_checks=STAND_INS)
        text = texts[platform] = exporting(*arguments).mlir_module()
        assert "optimization_barrier" not in text, platform
        assert wide or not re.search(r"\bf64\b|xf64\b", text), platform
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
            lowered(jax.value_and_grad(total, has_aux=True), graph.params().vals(), wide=wide)


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The programs that run, with the shapes and types of their arguments."""
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


def operations_on(text: str, start: str = "params") -> dict[str, Counter[str]]:
    """The operations on each argument whose name begins with ``start``, and on what ``convert`` makes of
    it."""
    head, *lines = text[text.index("func.func public @main") :].partition("\n  }")[0].splitlines()
    known = {
        f"%arg{number}": name
        for number, name in re.findall(r'%arg(\d+): tensor<[^>]*> loc\("([^"]*)"\)', head)
        if name.startswith(start)
    }
    found: dict[str, Counter[str]] = {name: Counter() for name in known.values()}
    for line in lines:
        result, _, body = line.partition(" loc(")[0].partition(" = ")
        operation = re.search(r"stablehlo\.(\w+)|call @(\w+)", body)
        for operand in set(re.findall(r"%\w+", body)) & known.keys():
            assert operation is not None, line
            found[known[operand]][operation[1] or operation[2]] += 1
            if operation[1] == "convert":
                known[result.strip()] = known[operand]
    return found


SIZES: dict[str, Any] = {
    "type": "transformer",
    "dim_vocabs": (24, 28),
    "dim_emb": 16,
    "enc_depth": 1,
    "dec_depth": 1,
    "transformer_heads": 2,
    "transformer_dim_ffn": 24,
}


def train(kind: Type, given: Batch, attention_dropout: float = 0.0) -> None:
    """One update of a transformer."""
    created = create_model(ModelOptions(**SIZES), seed=4)
    dropouts = Dropouts(transformer=0.1, transformer_attention=attention_dropout)
    model = Model(created.options, created.params, dropouts)
    learner = Learner(Objective(model, LossOptions(0.1), kind), UpdateStep(mgraph.Adam(0.001)), seed=7)
    learner.update([given], learn_rate=0.001, number=1)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_an_update_of_a_bfloat16_transformer(attention_dropout: float, run_here: Recorded) -> None:
    train(Type.bfloat16, batch(6, 0), attention_dropout)
    gradient, update = run_here
    texts = lowered(gradient[0], *gradient[1])
    masks = 2 + 2 + 3 + (3 if attention_dropout else 0)
    for text in texts.values():
        found = products(text)
        assert found.count("bf16") > 40 and set(found) == {"bf16"}
        assert len(re.findall(r"call @_drawn", text)) == masks, "each is drawn once"
    lowered(update[0], *update[1])


@pytest.mark.parametrize("kind", [Type.float32, Type.bfloat16])
def test_no_weight_is_copied(kind: Type, run_here: Recorded) -> None:
    """Each is cast once, if at all, and read by its product and by one of the product's two gradients."""
    train(kind, batch(6, 0))
    gradient, update = run_here
    cast = Counter() if kind is Type.float32 else Counter(convert=1)
    for text in lowered(gradient[0], *gradient[1]).values():
        found = operations_on(text)
        assert len(found) == 46
        for name, operations in found.items():
            if re.search(r"_W[qkvo12t]+'", name):
                assert operations - cast == Counter(dot_general=2), name
            elif "Wemb" in name:
                assert operations - cast == Counter(gather=1), name
            else:
                assert set(operations) <= {"convert", "reshape", "broadcast_in_dim"}, name
    for text in lowered(update[0], *update[1]).values():
        found = operations_on(text, "state")
        assert len(found) == 3 * 46 + 1
        for name, operations in found.items():
            assert not operations.keys() & {"convert", "transpose", "concatenate", "gather"}, name


KERNELS = "attention_alone", "attention_forwards", "attention_backwards"
STAND_INS = [jax.export.DisabledSafetyCheck.custom_call(name) for name in KERNELS]


def stand_in(q: Any, k: Any, v: Any, *, mask: Any, scale: float, implementation: str) -> Any:
    """Custom calls in place of cuDNN's, for inputs that cuDNN has kernels for."""
    alone, forwards, backwards = KERNELS
    lengths, statistics = (q.shape[1], k.shape[1]), (q.shape[0], q.shape[2], q.shape[1])
    if implementation != "cudnn" or q.dtype.itemsize != 2 or q.shape[-1] % 8:
        raise NotImplementedError

    def like(*arrays: Any) -> Any:
        return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)

    @jax.custom_vjp
    def attention(*given: Any) -> Any:
        return jax.ffi.ffi_call(alone, *like(q))(*given)

    def forward(*given: Any) -> Any:
        if lengths[0] % 2 or lengths[1] % 2:
            raise NotImplementedError
        results = (*like(q), jax.ShapeDtypeStruct(statistics, jnp.float32))
        found, sums = jax.ffi.ffi_call(forwards, results)(*given)
        return found, (given, found, sums)

    def backward(kept: Any, adj: Any) -> Any:
        given, found, sums = kept
        return *jax.ffi.ffi_call(backwards, like(q, k, v))(*given, found, sums, adj), None

    attention.defvjp(forward, backward)
    return attention(q, k, v, mask)


def calls(text: str, target: str) -> tuple[int, int]:
    """The number of calls of a custom kernel, and how many are left when equal values are computed once, as
    XLA does."""
    numbers: dict[str, str] = {}
    known: dict[str, str] = {}
    found: list[str] = []
    for line in text[text.index("func.func public @main") :].splitlines()[1:]:
        results, _, body = line.partition(" loc(")[0].strip().partition(" = ")
        value = re.sub(r"%\w+", lambda match: known.get(match[0], match[0]), body)
        if "({" not in body:  # a region follows, which the line does not include
            known[results.partition(":")[0]] = numbers.setdefault(value, f"value{len(numbers)}")
        if f"@{target}(" in body:
            found.append(value)
    return len(found), len(set(found))


def test_attention_is_one_call_forwards_and_one_backwards(
    monkeypatch: pytest.MonkeyPatch, run_here: Recorded
) -> None:
    """For packed sentences, too, as long as their lengths are even."""
    train(Type.bfloat16, pad([[[3, 4, 5, 0], [3, 0]], [[3, 0], [3, 4, 5, 6, 7, 0]]], (2, 4, 6), target=True))
    function, arguments = run_here[0]
    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    monkeypatch.setattr("mgraph.ops.attention.FLASH_LENGTH", 2)
    texts = lowered(function, *arguments)
    assert {name: calls(texts["cuda"], name)[1] for name in KERNELS} == dict(
        zip(KERNELS, (0, 3, 3), strict=True)
    )
    assert not any(name in texts["tpu"] for name in KERNELS)


def test_the_search_of_a_translator(run_here: Recorded) -> None:
    folder = numbers.model_dir()
    vocab = str(folder / "vocab.spm")
    translator = Translator(str(folder / "model.npz"), [vocab, vocab], beam_size=4)
    assert translator.translate(["twenty-one", "three hundred"])
    programs = list(run_here)
    assert len(programs) > 1
    sizes = {f"tensor<{'x'.join(map(str, p.shape))}xf32>" for p in translator.models[0].params.values()}
    for function, arguments in programs:
        texts = lowered(function, *arguments)
        for text in texts.values():
            copied = re.findall(r"stablehlo\.(?:transpose|convert|concatenate) .*?: \((tensor<[^>]*>)", text)
            assert not sizes & set(copied)
    assert all("stablehlo.while" in text for text in texts.values())
