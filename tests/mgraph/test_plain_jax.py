"""A graph's pure function is ordinary JAX: every transformation, any optimizer, export, sharding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mgraph
from mgraph import ExpressionGraph, Function, inits
from tests.helpers.fresh import python
from tests.helpers.leaves import drawn


def recorded(batch: int = 8) -> tuple[Function, dict[str, Any]]:
    """A small classifier, its mean loss as a function of inputs and labels, and its parameters."""
    graph = ExpressionGraph()
    x = graph.input("x", (batch, 4))
    labels = graph.input("labels", (batch,), "uint32")
    hidden = mgraph.tanh(
        mgraph.affine(x, graph.param("W1", (4, 6)), graph.param("b1", (1, 6), inits.zeros()))
    )
    hidden = mgraph.layer_norm(hidden, graph.param("gain", (1, 6), inits.ones()))
    logits = mgraph.affine(hidden, graph.param("W2", (6, 3)), graph.param("b2", (1, 3), inits.zeros()))
    loss = mgraph.mean(mgraph.cross_entropy(logits, labels), 0)
    return graph.function(mgraph.reshape(loss, ()), [x, labels]), graph.params().vals()


def plain(p: dict[str, Any], x: Any, labels: Any) -> Any:
    """The same loss in plain JAX."""
    hidden = jnp.tanh(x @ p["W1"] + p["b1"])
    centred = hidden - hidden.mean(-1, keepdims=True)
    hidden = p["gain"] * centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-9)
    logits = jax.nn.log_softmax(hidden @ p["W2"] + p["b2"])
    return -jnp.take_along_axis(logits, labels[:, None].astype(int), 1).mean()


X, LABELS = drawn(8, 4), np.array([0, 1, 2, 0, 1, 2, 0, 1], np.uint32)


def close(mine: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    chex.assert_trees_all_close(mine, theirs, rtol=tolerance, atol=tolerance)


def test_jit_and_grad() -> None:
    f, params = recorded()
    value, gradients = jax.jit(jax.value_and_grad(f.pure))(params, (X, LABELS))
    close((value, gradients), jax.value_and_grad(plain)(params, X, LABELS))


def test_vmap_over_parameters_and_over_data() -> None:
    f, params = recorded()
    many = {name: jnp.stack([value, 2 * value, value - 1]) for name, value in params.items()}
    close(jax.vmap(f.pure, (0, None))(many, (X, LABELS)), jax.vmap(plain, (0, None, None))(many, X, LABELS))
    one, params = recorded(1)
    per_example = jax.vmap(jax.grad(lambda p, x, y: one.pure(p, (x[None], y[None]))), (None, 0, 0))
    expected = jax.vmap(jax.grad(lambda p, x, y: plain(p, x[None], y[None])), (None, 0, 0))
    close(per_example(params, X, LABELS), expected(params, X, LABELS))


def test_training_inside_a_scan() -> None:
    f, params = recorded()
    batches = jnp.stack([X, X[::-1], 2 * X]), jnp.stack([LABELS, LABELS[::-1], LABELS])

    def trained(loss: Any) -> Any:
        def step(p: Any, batch: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(p, batch)
            return jax.tree.map(lambda a, g: a - 0.1 * g, p, gradients), value

        return jax.jit(lambda p: jax.lax.scan(step, p, batches))(params)

    close(trained(f.pure), trained(lambda p, batch: plain(p, *batch)))


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adamw(1e-2),
        optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9, nesterov=True)),
        optax.lion(1e-3),
        optax.adafactor(1e-2, min_dim_size_to_factor=2),
        optax.MultiSteps(optax.adagrad(0.1), 2),
        optax.chain(
            optax.add_decayed_weights(1e-3), optax.scale_by_schedule(optax.linear_schedule(-0.1, 0, 4))
        ),
        optax.apply_if_finite(optax.contrib.schedule_free_adamw(1e-2), 3),
    ],
    ids="adamw clipped-nesterov lion adafactor multi-steps schedule schedule-free".split(),
)
@pytest.mark.sampled(every=3)
def test_any_optimizer_of_optax(optimizer: Any) -> None:
    f, params = recorded()

    @jax.jit
    def step(p: Any, state: Any) -> Any:
        value, gradients = jax.value_and_grad(f.pure)(p, (X, LABELS))
        updates, state = optimizer.update(gradients, state, p)
        return optax.apply_updates(p, updates), state, value

    state, losses = optimizer.init(params), []
    for _ in range(8):
        params, state, value = step(params, state)
        losses.append(float(value))
    assert losses[-1] < losses[0]


@pytest.mark.thorough
def test_second_derivatives() -> None:
    f, params = recorded()
    direction = jax.tree.map(jnp.ones_like, params)

    def curvature(loss: Any) -> Any:
        slope = jax.grad(loss)
        return jax.grad(lambda p: optax.tree_utils.tree_vdot(slope(p), direction))(params)

    close(curvature(lambda p: f.pure(p, (X, LABELS))), curvature(lambda p: plain(p, X, LABELS)), 1e-3)


RELOAD = """
import sys
import jax, jax.export, numpy as np
stored = dict(np.load(sys.argv[1]))
with open(sys.argv[2], "rb") as file:
    exported = jax.export.deserialize(bytearray(file.read()))
x, labels = stored.pop("x"), stored.pop("labels")
value = exported.call(stored, (x, labels))
adjoint = np.float32(1)
gradients = exported.vjp().call(*jax.tree.leaves((stored, (x, labels))), adjoint)
gradients = dict(zip(sorted(stored), gradients))
assert not any(name.split(".")[0] in ("mgraph", "layers", "nmt") for name in sys.modules)
np.savez(sys.argv[3], value=value, **gradients)
"""


def test_an_exported_function_runs_without_mgraph(tmp_path: Path) -> None:
    f, params = recorded()
    exported = jax.export.export(jax.jit(f.pure))(params, (X, LABELS))
    (tmp_path / "loss.bin").write_bytes(exported.serialize(vjp_order=1))
    np.savez(tmp_path / "arguments.npz", x=X, labels=LABELS, **params)
    names = [str(tmp_path / name) for name in ("arguments.npz", "loss.bin", "results.npz")]
    python(RELOAD, *names, cwd=tmp_path)
    with np.load(tmp_path / "results.npz") as results:
        found = dict(results)
    value, gradients = jax.value_and_grad(f.pure)(params, (X, LABELS))
    close(found, {"value": value, **gradients})


SHARDED = """
import jax, mgraph, numpy as np
from mgraph import ExpressionGraph, inits
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.mgraph.test_plain_jax import LABELS, X, close, plain, recorded
assert len(jax.devices()) == 4
f, params = recorded()
mesh = Mesh(np.array(jax.devices()), ("batch",))
split, everywhere = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
x, labels = jax.device_put((X, LABELS), split)
placed = jax.device_put(params, everywhere)
step = jax.jit(jax.value_and_grad(f.pure), out_shardings=everywhere)
value, gradients = step(placed, (x, labels))
assert len(value.sharding.device_set) == 4
assert "all-reduce" in step.lower(placed, (x, labels)).compile().as_text()
expected = jax.value_and_grad(plain)(params, X, LABELS)
close((value, gradients), expected)

def mean(params, x, labels):
    return jax.lax.pmean(part.pure(params, (x, labels)), "batch")

part, _ = recorded(batch=2)
for split_labels in (True, False):  # where labels are the same everywhere a rule meets both kinds of value
    specs = (P(), P("batch"), P("batch") if split_labels else P())
    total = jax.shard_map(mean, mesh=mesh, in_specs=specs, out_specs=P())
    inside = jax.shard_map(jax.value_and_grad(mean), mesh=mesh, in_specs=specs, out_specs=P())
    given = (placed, x, labels if split_labels else labels[:2])
    expected = jax.value_and_grad(plain)(params, X, LABELS if split_labels else np.tile(LABELS[:2], 4))
    close(jax.jit(jax.value_and_grad(total))(*given), expected)
    close(jax.jit(inside)(*given), expected)

graph = ExpressionGraph()
p = graph.param("p", (8,), inits.from_tensor(X[:, 0]))
mgraph.sum(p * p)
one = p.val()
for value in (one, jax.device_put(one, split), one, jax.device_put(one, everywhere)):
    p.set_value(value)
    graph.backprop()
    assert p.grad().sharding.device_set == value.sharding.device_set
    close(p.grad(), 2 * X[:, 0])
"""


EXPLICIT = """
import jax, mgraph
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from mgraph import ExpressionGraph
from tests.mgraph.test_plain_jax import LABELS, X, close, plain, recorded
mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Explicit,))
x, labels = jax.device_put((X, LABELS), NamedSharding(mesh, P("batch")))
f, params = recorded()
with jax.set_mesh(mesh):
    found = jax.jit(jax.value_and_grad(f.pure))(params, (x, labels))
close(found, jax.value_and_grad(plain)(params, X, LABELS))

graph = ExpressionGraph()
given = graph.input("x", (8, 4))
table = mgraph.rows(graph.param("table", (5, 4)), graph.indices([0, 1, 2, 3, 4, 0, 0, 2]))
best = mgraph.topk(table * given, 2, -1)[0]
weights = graph.param("weights", (2, 2))
steps = mgraph.reshape(mgraph.concatenate([best, best * best], 1), (8, 2, 2))
steps = mgraph.transpose(steps, (1, 0, 2))
sums = mgraph.scan(lambda s, v: (mgraph.dot(s, weights) + v,) * 2, best, steps)[1]
total = graph.function(mgraph.sum(mgraph.sum(sums * sums)[0], (0, 1)), [given])
slopes = jax.grad(lambda params, x: total.pure(params, [x])[0, 0], argnums=(0, 1))
with jax.set_mesh(mesh):
    found = jax.jit(slopes)(total.values(), x)
assert found[1].sharding.spec == P("batch", None)
close(found, slopes(total.values(), X))
"""


def test_gradients_are_divided_as_their_arrays_are() -> None:
    """With axes of type ``Explicit``, JAX must be told how the product of two divided axes is divided."""
    python(EXPLICIT, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")


@pytest.mark.thorough
def test_the_batch_spreads_over_devices() -> None:
    python(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
