"""Pure functions under the transformations of JAX: each cell of the table in docs/transformations.md."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, Node, inits, scan
from mgraph.gradcheck.example import record_case
from mgraph.gradcheck.survey import own_operators
from nmt.files import create_model
from nmt.models import Source
from nmt.settings.model_options import parse_model_options
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

BATCH, DIM = 4, 3
Params = dict[str, Any]
Loss = Callable[[Params, Any], Any]


def dense(graph: ExpressionGraph, x: Node, name: str) -> Node:
    w, b = graph.param(f"{name}W", (DIM, DIM)), graph.param(f"{name}b", (1, DIM))
    return mgraph.tanh(mgraph.affine(x, w, b))


def of_graph(derivatives: str) -> tuple[Loss, Params, Any]:
    graph = ExpressionGraph()
    x = graph.input("x", (BATCH, DIM))
    h = mgraph.layer_norm(dense(graph, x, "a") * 0.7 + x, graph.param("scale", (1, DIM)))
    return finished(graph, x, h, derivatives)


def of_loop(derivatives: str) -> tuple[Loss, Params, Any]:
    graph = ExpressionGraph()
    x = graph.input("x", (BATCH, DIM))
    shape = (5, BATCH, DIM)
    steps = graph.constant(shape, inits.from_vector(np.sin(np.arange(math.prod(shape)))))

    def step(state: Node, given: Node) -> tuple[Node, Node]:
        state = dense(graph, state * 0.9 + given, "a")
        return state, mgraph.square(state)

    last, results = scan(step, x, steps)
    return finished(graph, x, last + mgraph.sum(results)[0], derivatives)


def of_checkpoints(derivatives: str) -> tuple[Loss, Params, Any]:
    graph = ExpressionGraph()
    x = h = graph.input("x", (BATCH, DIM))
    for name in "abc":
        h = mgraph.checkpoint(dense(graph, h, name) + h)
    graph.set_checkpointing()
    return finished(graph, x, h, derivatives)


def finished(graph: ExpressionGraph, x: Node, h: Node, derivatives: str) -> tuple[Loss, Params, Any]:
    top = mgraph.sum(mgraph.sum(mgraph.sigmoid(h) * h, 1), 0)
    pure = graph.function(top, [x], derivatives=derivatives).pure
    batch = np.cos(np.arange(BATCH * DIM, dtype=np.float32)).reshape(BATCH, DIM)
    return (lambda params, x: pure(params, [x])[0, 0]), graph.params().vals(), jnp.asarray(batch)


@functools.cache
def small_model() -> Any:
    return create_model(parse_model_options(
        "type: transformer\ndim-vocabs: [7, 7]\ndim-emb: 4\ntransformer-heads: 2\ntransformer-dim-ffn: 6\n"
        "enc-depth: 1\ndec-depth: 1\ntied-embeddings-all: true\n", "test"
    ))  # fmt: skip


def of_model(derivatives: str) -> tuple[Loss, Params, Any]:
    model = small_model()
    scorer = model.scorer(BATCH, (3,), 2, derivatives=derivatives)
    ids = jnp.asarray(np.arange(BATCH * 3).reshape(BATCH, 3) % 7, jnp.int32)
    source, target = (Source(i, jnp.ones(i.shape, jnp.float32)) for i in (ids, ids[:, :2]))

    def loss(params: Params, weights: Any) -> Any:
        return jnp.sum(scorer(params, [source], target) * weights)

    return loss, model.params, jnp.linspace(0.5, 1, BATCH * 2).reshape(BATCH, 2)


KINDS: dict[str, Callable[[str], tuple[Loss, Params, Any]]] = {
    "graph": of_graph,
    "loop": of_loop,
    "checkpointed graph": of_checkpoints,
    "model function": of_model,
}


def close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    scale = max(float(np.abs(np.asarray(e)).max()) for e in jax.tree.leaves(expected))
    chex.assert_trees_all_close(found, expected, rtol=1e-7, atol=tolerance * scale)


def plain_gradient(kind: str) -> Any:
    """JAX's own gradient of the same forward, without the transformation under test."""
    loss, params, x = KINDS[kind]("jax")
    return jax.grad(loss)(params, x)


def under_jit(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    close(jax.jit(loss)(params, x), loss(params, x))


def under_grad(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    close(jax.jit(jax.grad(loss))(params, x), plain_gradient(kind))


def under_vmap(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    both = jnp.stack([x, 0.5 * x])
    found = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, both)
    each = [jax.grad(loss)(params, one) for one in both]
    close(found, jax.tree.map(lambda *g: jnp.stack(g), *each))


def under_scan(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")

    def descent(params: Params, rate: Any) -> tuple[Params, Any]:
        gradient = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradient), loss(params, x)

    found, _ = jax.lax.scan(descent, params, jnp.array([0.1, 0.05]))
    expected = params
    for rate in (0.1, 0.05):
        expected, _ = descent(expected, rate)
    close(found, expected)


def under_remat(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    close(jax.jit(jax.grad(jax.checkpoint(loss)))(params, x), plain_gradient(kind))


def under_shard_map(kind: str) -> None:
    """With the same parameters on all devices and summed gradients; and the gradient of a shard_map."""
    loss, params, x = KINDS[kind]("rules")
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    none, rows = PartitionSpec(), PartitionSpec("d")

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(none, rows), out_specs=none)
    def inside(params: Params, x: Any) -> Any:
        return jax.grad(loss)(params, x)

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(none, rows), out_specs=none)
    def total(params: Params, x: Any) -> Any:
        return jax.lax.psum(loss(params, x), "d")

    expected = plain_gradient(kind)
    close(jax.jit(inside)(params, x), expected)
    close(jax.jit(jax.grad(total))(params, x), expected)


def under_export(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    exported = jax.export.export(jax.jit(jax.grad(loss)))(params, x)
    again = jax.export.deserialize(exported.serialize())
    close(again.call(params, x), plain_gradient(kind))


def under_donate(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    mine = jax.tree.map(jnp.array, params)

    @functools.partial(jax.jit, donate_argnums=0)
    def update(params: Params, x: Any) -> Params:
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    found = update(mine, x)
    assert all(p.is_deleted() for p in mine.values())
    close(found, jax.tree.map(lambda p, g: p - 0.1 * g, params, plain_gradient(kind)))


def under_jvp(kind: str) -> None:
    """With JAX's derivatives."""
    loss, params, x = KINDS[kind]("jax")
    direction = jax.tree.map(lambda p: jnp.cos(jnp.arange(p.size, dtype=p.dtype)).reshape(p.shape), params)
    _, found = jax.jit(lambda p, t: jax.jvp(lambda p: loss(p, x), (p,), (t,)))(params, direction)
    by_rules, _, _ = KINDS[kind]("rules")
    gradient = jax.grad(by_rules)(params, x)
    expected = sum(jnp.vdot(g, direction[name]) for name, g in gradient.items())
    close(found, expected, 1e-4)


def under_hessian(kind: str) -> None:
    """With rules and with JAX's derivatives, forward over reverse and reverse over reverse."""
    found = []
    for derivatives in ("rules", "jax"):
        loss, params, x = KINDS[kind](derivatives)
        name = next(iter(params))

        def of_one(p: Any, loss: Loss = loss, params: Params = params, x: Any = x, name: str = name) -> Any:
            return loss({**params, name: p}, x)

        for second in (jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
            found.append(jax.jit(second(of_one))(params[name]))
    for hessian in found[:-1]:
        close(hessian, found[-1], 1e-4)


TRANSFORMATIONS: dict[str, Callable[[str], None]] = {
    "jit": under_jit,
    "grad": under_grad,
    "vmap": under_vmap,
    "scan": under_scan,
    "remat": under_remat,
    "shard_map": under_shard_map,
    "export": under_export,
    "donate": under_donate,
    "jvp": under_jvp,
    "hessian": under_hessian,
}


SAMPLES = {"graph": TRANSFORMATIONS, "loop": TRANSFORMATIONS.keys() - {"hessian"}, "model function": ["jit"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.sampled(*(f"{name}-{kind}" for kind, names in SAMPLES.items() for name in names))
def test_works_under(transformation: str, kind: str) -> None:
    TRANSFORMATIONS[transformation](kind)


@pytest.mark.parametrize("operator", own_operators(), ids=lambda c: c.__name__)
@pytest.mark.sampled(every=4)
def test_every_rule_passes_the_checks_of_shard_map(operator: type[NaryNodeOp]) -> None:
    """Gradients inside a shard_map in which one input differs between devices and the others do not."""
    for case in operator.cases:
        graph = ExpressionGraph()
        node, _ = record_case(graph, operator, case, case.values(), "float32")
        pure, params = graph.function(node, []).pure, graph.params().vals()
        with jax.enable_x64(True):  # for the cast to float64
            for differing in {min(params), max(params)}:
                found = jax.eval_shape(sharded_gradient(pure, differing), params)
                chex.assert_trees_all_equal_shapes(found, params)


def sharded_gradient(pure: Any, differing: str) -> Callable[[Params], Params]:
    """The gradient of the sum of squares of what ``pure`` returns; one parameter varies between devices."""

    def loss(params: Params) -> Any:
        leaves = jax.tree.leaves(pure(params, key=jax.random.key(1)))
        return sum(jnp.sum(v * v) for v in leaves if jnp.issubdtype(v.dtype, jnp.floating))

    def gradient(params: Params) -> Params:
        own = jax.lax.pcast(params[differing], "d", to="varying")
        found = jax.grad(loss)({**params, differing: own})
        return {**found, differing: jax.lax.psum(found[differing], "d")}

    mesh, same = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,)), PartitionSpec()
    return jax.shard_map(gradient, mesh=mesh, in_specs=same, out_specs=same)


PAGE = ROOT / "docs" / "transformations.md"


def test_the_table_of_the_page_is_that_of_the_tests() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    head, _, *cells = rows
    assert head[1:] == list(KINDS)
    assert [row[0].strip("`") for row in cells] == list(TRANSFORMATIONS)
    assert all(cell.startswith("yes") for row in cells for cell in row[1:])


def test_the_blocks_of_the_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert check_blocks(blocks, "transformations.md")


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_through_rules_is_what_jax_refuses(kind: str) -> None:
    loss, params, x = KINDS[kind]("rules")
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda p: loss(p, x), (params,), (params,))


def test_all_functions_of_a_model_meet_our_rules() -> None:
    model, ids = small_model(), jnp.ones((BATCH, 3), jnp.int32)
    sources = [Source(ids, jnp.ones(ids.shape, jnp.float32))]
    encoder, stepper = model.encoder(BATCH, (3,)), model.stepper(BATCH, 1, (3,), (2,))
    encoded = encoder(model.params, sources)

    def first_step(params: Params) -> Any:
        state = stepper.start(params, encoded)
        return stepper.step(params, encoded, state, ids[:, 0], jnp.int32(0))[0]

    for function in (lambda p: encoder(p, sources), first_step):
        with pytest.raises(TypeError, match="forward-mode"):
            jax.jvp(function, (model.params,), (model.params,))
