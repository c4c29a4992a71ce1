"""Optimizers of optax by name, compared with loops that use only optax."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, Optax, inits
from mgraph.optimizers import moved
from mgraph.optimizers.optax_functions import optimizers, rate_of

RATES = (0.1, 0.02, 0.05)
PARAMS = {
    "a": np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32),
    "b": np.float32([[0.5, -2.0, 1.0]]),
}
GRADIENTS = [{name: np.cos(i + 9 * value) for name, value in PARAMS.items()} for i in range(len(RATES))]
COSTS = [np.float32(cost) for cost in (3.0, 2.5, 0.25)]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "adafactor": {"min_dim_size_to_factor": 4, "momentum": 0.9, "weight_decay_rate": 1e-3},
    "adamw": {"weight_decay": 0.1, "nesterov": True},
    "contrib.galore": {"rank": 2},
    "lbfgs": {"linesearch": None, "memory_size": 2},
    "lion": {"mu_dtype": "bfloat16"},
    "noisy_sgd": {"key": 1},
    "rmsprop": {"momentum": 0.9, "centered": True},
    "sgd": {"momentum": 0.9},
}
REFUSED = {
    "contrib.dpsgd": "optax.contrib.dpsgd needs the arguments l2_norm_clip, noise_multiplier, seed",
    "contrib.schedule_free": "optax.contrib.schedule_free needs the arguments base_optimizer",
    "contrib.schedule_free_adamw": "is not supported: it trains other parameters than those that are used",
    "contrib.schedule_free_sgd": "is not supported: it trains other parameters than those that are used",
    "contrib.sophia": "optax.contrib.sophia does not work: .*obj_fn",
}
"""Why others cannot be used: privacy per sentence and Hessians need more than a batch's gradients."""
NEED_COSTS = {"polyak_sgd", "contrib.momo", "contrib.momo_adam"}


def of_name(name: str, **arguments: Any) -> Optax:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from optimistic_adam
        return Optax(name, RATES[0], **{**ARGUMENTS.get(name, {}), **arguments})


def of_optax(name: str) -> tuple[dict[str, Any], Any]:
    """Parameters and state after a loop that uses only optax."""
    function, params, state = optimizers()[name], PARAMS, None
    for rate, gradients, cost in zip(RATES, GRADIENTS, COSTS, strict=True):
        rates = {rate_of(function): rate}
        alone = optax.with_extra_args_support(function(**rates, **ARGUMENTS.get(name, {})))
        state = alone.init(params) if state is None else state
        moves, state = alone.update(gradients, state, params, value=cost)
        params = optax.apply_updates(params, moves)
    return params, state


def of_ours(name: str, rates: Any) -> tuple[dict[str, Any], Any]:
    """Parameters and state after a loop with our optimizer, which gets the rates as arguments."""
    optimizer, params = of_name(name), PARAMS
    state = optimizer.init(params)
    for i, (gradients, cost) in enumerate(zip(GRADIENTS, COSTS, strict=True)):
        moves, state = optimizer.moves(gradients, state, params, rates[i], cost)
        params = moved(params, moves)
    return params, state


WORKING = sorted(optimizers().keys() - REFUSED.keys())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", WORKING)
@pytest.mark.sampled("adafactor", "adamw", "lion", "nadam", "rmsprop")
def test_updates_are_those_of_a_loop_of_optax(name: str) -> None:
    params, alone = jax.jit(lambda: of_optax(name))()
    found, state = jax.jit(lambda rates: of_ours(name, rates))(np.float32(RATES))
    for parameter, expected in params.items():
        assert not np.array_equal(expected, PARAMS[parameter])
        np.testing.assert_allclose(found[parameter], expected, rtol=2e-6, atol=2e-7)
    assert len(jax.tree.leaves(state.moments)) == len(jax.tree.leaves(alone))
    assert int(state.steps) == len(RATES)


def test_what_cannot_be() -> None:
    assert optimizers().keys() >= REFUSED.keys() | NEED_COSTS | ARGUMENTS.keys() | {"nadam", "nadamw"}
    for name, message in REFUSED.items():
        with pytest.raises(ArgumentError, match=message):
            Optax(name, 0.1)
    for name in WORKING:
        assert of_name(name).needs_cost == (name in NEED_COSTS), name


def test_the_state_has_names() -> None:
    state = of_name("adafactor").init(PARAMS)
    shapes = {name: {key: value.shape for key, value in tree.items()} for name, tree in state.moments.items()}
    assert shapes == {
        "optax.adafactor.0.count": {"": ()},
        "optax.adafactor.0.v_row": {"a": (4,), "b": (1,)},
        "optax.adafactor.0.v_col": {"a": (6,), "b": (1,)},
        "optax.adafactor.0.v": {"a": (1,), "b": (1, 3)},
        "optax.adafactor.4.count": {"": ()},
        "optax.adafactor.4.ema": {"a": (4, 6), "b": (1, 3)},
    }
    key = of_name("noisy_sgd").init(PARAMS).moments["optax.noisy_sgd.0.rng_key"][""]
    assert key.dtype == np.uint32
    assert of_name("lion").init(PARAMS).moments["optax.lion.0.mu"]["a"].dtype == jnp.bfloat16


def graph_with(value: np.ndarray) -> tuple[ExpressionGraph, Any]:
    graph = ExpressionGraph()
    p = graph.param("p", value.shape, inits.from_tensor(value))
    return graph, p


def test_a_graph_is_updated_as_by_a_loop_of_optax() -> None:
    graph, p = graph_with(PARAMS["a"])
    optimizer = Optax("adamw", 0.1, clip_norm=1.0, b1=0.8, weight_decay=0.1)
    alone = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, b1=0.8, weight_decay=0.1))
    params = {"p": PARAMS["a"]}
    state = alone.init(params)
    for _ in range(3):
        graph.clear()
        mgraph.sum(p * p * p)
        graph.backprop()
        before = mgraph.compile_stats()
        optimizer.update(graph)
        moves, state = alone.update({"p": 3 * params["p"] ** 2}, state, params)
        params = optax.apply_updates(params, moves)
    np.testing.assert_allclose(p.val(), params["p"], rtol=1e-5)
    optimizer.learn_rate = 0.01
    optimizer.update(graph)
    assert (mgraph.compile_stats() - before).misses == 0


def test_an_optimizer_that_needs_the_cost() -> None:
    graph, p = graph_with(np.float32([3.0]))
    top = mgraph.sum(p * p)
    graph.backprop()
    optimizer = Optax("polyak_sgd", 10.0)
    with pytest.raises(ArgumentError, match="optax.polyak_sgd needs the cost: expected update"):
        optimizer.update(graph)
    optimizer.update(graph, cost=top.val())
    assert p.scalar() == pytest.approx(3 - 9 / 36 * 6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("lionn", {}, r"optax has no optimizer 'lionn'; did you mean lion\? \(optimizers: adabelief, "),
        ("scale_by_adam", {}, "optax has no optimizer 'scale_by_adam'"),
        (optax.lion, {}, r"expected the name of an optimizer of optax, such as 'lion', got <function lion"),
        ("lion", {"beta1": 0.9}, r"lion has no argument 'beta1' to set \(arguments: b1, b2, mu_dtype, "),
        ("lion", {"learning_rate": 0.9}, "optax.lion has no argument 'learning_rate' to set"),
        ("lion", {"b1": "high"}, "optax.lion: b1: expected a number, got 'high'"),
        ("adamw", {"weight_decay": "abc"}, "optax.adamw: weight_decay: expected a number, got 'abc'"),
        ("adam", {"nesterov": "maybe"}, "optax.adam: nesterov: expected true or false, got 'maybe'"),
        ("lion", {"mu_dtype": "float17"}, "optax.lion does not work: "),
        ("adamw", {"mask": {"a": True}}, "expected arguments that can be compared, got an unhashable"),
        (
            "contrib.dpsgd",
            {"l2_norm_clip": 1.0, "noise_multiplier": 0.1, "seed": 1},
            "optax.contrib.dpsgd does not work: .*expects `grads` to have a batch dimension",
        ),
        ("lbfgs", {}, "optax.lbfgs does not work: .*value_fn.*linesearch none"),
    ],
)
def test_mistakes(name: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Optax(name, 0.1, **arguments)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (optax.adamw(1e-2), r"expected the name of an optimizer .* got Gradient.*: Optax\('lion', 1e-4\)"),
        ("adamw", r"expected a learning rate, too: Optax\('adamw', 1e-4\)"),
    ],
)
def test_a_learning_rate_is_asked_for(name: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Optax(name)
