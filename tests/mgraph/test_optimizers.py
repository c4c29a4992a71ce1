"""Optimizers compared with Marian's formulas, written out in numpy."""

from __future__ import annotations

import copy
import functools
import pickle

import jax
import numpy as np
import optax
import pytest

import mgraph
from mgraph import Adagrad, Adam, ArgumentError, ExpressionGraph, GraphError, Sgd, inits

START = np.float32([2.0, -1.0, 0.5])


def descend(optimizer: mgraph.Optimizer, steps: int = 4) -> np.ndarray:
    """Parameters after some updates on the loss sum(p^3)."""
    graph = ExpressionGraph()
    for _ in range(steps):
        graph.clear()
        p = graph.param("p", (3,), inits.from_tensor(START))
        mgraph.sum(p * p * p)
        graph.backprop()
        optimizer.update(graph)
    return np.asarray(graph.params()["p"].val())


def test_sgd() -> None:
    p = START.astype(np.float64)
    for _ in range(4):
        p = p - 0.01 * 3 * p**2
    np.testing.assert_allclose(descend(Sgd(0.01)), p, rtol=1e-6)


def test_adagrad_adds_eps_outside_the_root() -> None:
    p, total = START.astype(np.float64), 0.0
    for _ in range(4):
        g = 3 * p**2
        total = total + g * g
        p = p - 0.1 / (np.sqrt(total) + 0.5) * g
    np.testing.assert_allclose(descend(Adagrad(0.1, eps=0.5)), p, rtol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(decay: float) -> None:
    p = START.astype(np.float64)
    m = v = d1 = d2 = 0.0
    for _ in range(4):
        g = 3 * p**2
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        d1, d2 = 0.9 * d1 + 0.1, 0.98 * d2 + 0.02
        p = p - 0.05 * ((m / d1) / (np.sqrt(v / d2) + 1e-3) + decay * p)
    found = descend(Adam(0.05, beta1=0.9, beta2=0.98, eps=1e-3, decay=decay))
    np.testing.assert_allclose(found, p, rtol=1e-5)


def test_adam_goes_on_with_the_moments_of_other_betas() -> None:
    """As in Marian, the denominators are updated with the new betas."""
    p, g = np.float32([2.0, -1.0]), np.float32([0.3, 0.4])
    m = v = d1 = d2 = 0.0
    state = Adam(0.1).init(p)
    for b1, b2, steps in ((0.9, 0.98, 3), (0.5, 0.999, 2)):
        adam = Adam(0.1, beta1=b1, beta2=b2)
        adam.denominators, state = (d1, d2), state._replace(steps=np.int32(0))
        for _ in range(steps):
            moves, state = adam.moves(g, state, p, 0.1)
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            d1, d2 = b1 * d1 + 1 - b1, b2 * d2 + 1 - b2
            np.testing.assert_allclose(moves, -0.1 * (m / d1) / (np.sqrt(v / d2) + 1e-8), rtol=1e-5)
    assert adam.key != Adam(0.1, beta1=0.5).key


def test_clip_norm_scales_by_the_norm_over_all_parameters(graph: ExpressionGraph) -> None:
    a = graph.param("a", (1,), inits.from_value(3.0))
    b = graph.param("b", (1,), inits.from_value(4.0))
    mgraph.sum(mgraph.square(a) * 0.5 + mgraph.square(b) * 0.5)
    graph.backprop()
    norm = Sgd(1.0, clip_norm=1.0).update(graph)
    assert float(norm) == pytest.approx(5.0)
    np.testing.assert_allclose([a.val()[0], b.val()[0]], [3 - 0.6, 4 - 0.8], rtol=1e-6)


def test_an_update_waits_for_nothing_and_moves_its_state_in_place(graph: ExpressionGraph) -> None:
    p = graph.param("p", (3,), inits.from_tensor(START))
    mgraph.sum(p * p)
    graph.backprop()
    optimizer = Adam(0.1)
    before = p.val()
    optimizer.update(graph)
    moments = jax.tree.leaves(optimizer._state)
    norm = optimizer.update(graph)
    assert isinstance(norm, jax.Array) and norm.shape == () and f"{norm:.3f}" == "4.583"
    assert len(moments) == 3 and all(m.is_deleted() for m in moments)
    np.testing.assert_array_equal(before, START)  # old values stay valid for their holders


def test_a_changed_learning_rate_compiles_nothing(graph: ExpressionGraph) -> None:
    p = graph.param("p", (2,), inits.ones())
    optimizer = Adam(0.1)
    for step in range(3):
        graph.clear()
        mgraph.sum(mgraph.square(p))
        graph.backprop()
        before = mgraph.compile_stats()
        optimizer.learn_rate = 0.1 / (step + 1)
        optimizer.update(graph)
        assert (mgraph.compile_stats() - before).misses == (1 if step == 0 else 0)


def test_the_tutorials_update(graph: ExpressionGraph) -> None:
    x = graph.param("x", (1, 1), inits.from_value(2))
    y = graph.constant((1, 1), inits.from_value(3))
    mgraph.abs(graph.constant((1, 1), inits.from_value(6)) - (x * y + mgraph.sin(x)))
    graph.backprop()
    Sgd(0.005).update(graph)
    assert x.scalar() == pytest.approx(1.98708, abs=5e-6)


def test_frozen_parameters_stay(graph: ExpressionGraph) -> None:
    a = graph.param("a", (1,), inits.ones(), fixed=True)
    b = graph.param("b", (1,), inits.ones())
    mgraph.sum(a * b)
    graph.backprop()
    Sgd(0.5).update(graph)
    assert (a.scalar(), b.scalar()) == (1.0, 0.5)


def test_mistakes() -> None:
    with pytest.raises(
        ArgumentError, match="expected a learning rate of at least 0 and a finite number, got '1'"
    ):
        Sgd("1")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected a learning rate of at least 0"):
        Sgd(np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected a learning rate of at least 0"):
        jax.jit(Adam)(0.1)
    with pytest.raises(ArgumentError, match="before each update, set learn_rate to what"):
        Adam(optax.linear_schedule(1, 0, 10))  # type: ignore[arg-type]
    for wrong in ({"learn_rate": -1}, {"learn_rate": np.inf}, {"eps": -1}, {"eps": np.nan}, {"decay": -1}):
        with pytest.raises(
            ArgumentError, match=f"expected .* of at least 0 and .*, got {next(iter(wrong.values()))}"
        ):
            Adam(**{"learn_rate": 1, **wrong})
    with pytest.raises(ArgumentError, match="expected a beta1 of at least 0 and less than 1, got 1"):
        Adam(1, beta1=1)
    graph = ExpressionGraph()
    with pytest.raises(GraphError, match="no trainable parameters"):
        Sgd(1).update(graph)
    with pytest.raises(GraphError, match="the graph has no nodes to differentiate"):
        graph.backprop()
    p = graph.param("p", (1,), inits.ones())
    with pytest.raises(GraphError, match="backward"):
        Sgd(1).update(graph)
    optimizer = Adam(0.1)
    mgraph.square(p)
    graph.backprop()
    for later in ("0.1", -1, np.nan, np.ones(2)):
        optimizer.learn_rate = later  # type: ignore[assignment]
        with pytest.raises(ArgumentError, match="expected a learning rate of at least 0"):
            optimizer.update(graph)
    optimizer.learn_rate = 0.1
    optimizer.update(graph)
    graph.param("q", (1,), inits.ones())
    with pytest.raises(GraphError, match="changed since the first update: q"):
        optimizer.update(graph)
    optimizer.reset()
    optimizer.update(graph)
    other = ExpressionGraph()
    mgraph.sum(other.param("p", (2,), inits.ones()) * other.param("q", (1,), inits.ones()))
    other.backprop()
    with pytest.raises(GraphError, match="changed since the first update: p;"):
        optimizer.update(other)


def unpickled(optimizer: mgraph.Optimizer) -> mgraph.Optimizer:
    return pickle.loads(pickle.dumps(optimizer))


@pytest.mark.parametrize(
    ("make", "type_", "again"),
    [
        (Adam, "float32", copy.copy),
        (Adam, "float32", copy.deepcopy),
        (Adam, "float32", None),
        (Adam, "float64", unpickled),
        (Adam, "bfloat16", unpickled),
        (Sgd, "float32", unpickled),
        (Adagrad, "float64", unpickled),
        (functools.partial(mgraph.Optax, "adamw"), "float32", unpickled),
    ],
)
def test_a_saved_optimizer_goes_on(make, type_: str, again) -> None:
    def values(saved: bool) -> bytes:
        graph, optimizer = ExpressionGraph(), make(0.1)
        p = graph.param("p", (3,), inits.from_tensor(START), type_)
        for step in range(4):
            graph.clear()
            mgraph.sum(p * p * p)
            graph.backprop()
            if saved and step == 2:
                before, optimizer = optimizer, again(optimizer) if again else make(0.1)
                if not again:
                    optimizer.state = before.state
                kept = np.array(p.val())
                before.update(graph)  # separately, with its own moments
                p.set_value(kept)
                assert before.state.steps == 3 and optimizer.state.steps == 2
            optimizer.update(graph)
        return np.asarray(p.val()).tobytes()

    assert values(saved=True) == values(saved=False)


def test_a_state_of_other_parameters() -> None:
    def graph_of(name: str, size: int) -> ExpressionGraph:
        graph = ExpressionGraph()
        mgraph.sum(graph.param(name, (size,), inits.ones()))
        graph.backprop()
        return graph

    saved, optimizer = Adam(0.1), Adam(0.1)
    assert saved.state is None
    saved.update(graph_of("p", 2))
    optimizer.state = saved.state
    for name, size, got in (("p", 3, r"float32\[3\], got float32\[2\]"), ("q", 2, r"none, got float32\[2\]")):
        with pytest.raises(
            ArgumentError, match=rf"not belong to these parameters: .*\['p'\]: expected {got}"
        ):
            optimizer.update(graph_of(name, size))
    optimizer.update(graph_of("p", 2))
    assert optimizer.state.steps == 2


def test_optimisers_with_other_settings_share_no_update() -> None:
    class Scaling(mgraph.Optimizer):
        def __init__(self, factor: float) -> None:
            super().__init__(1.0)
            self.factor = factor

        def transformation(self, learn_rate):
            return optax.sgd(learn_rate * self.factor)

    values = []
    for factor in (1.0, 2.0):
        graph = ExpressionGraph()
        w = graph.param("w", (2,), inits.ones())
        mgraph.sum(w)
        graph.backprop()
        Scaling(factor).update(graph)
        values.append(float(w.val()[0]))
    assert values == [0.0, -1.0]


@pytest.mark.parametrize("type_", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [mgraph.Adam, mgraph.Adagrad])
def test_sixteen_bit_parameters_without_gradient_stay_finite(make, type_: str) -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2,), inits.ones(), type_)
    mgraph.sum(w * graph.constant((2,), inits.from_vector([0.0, 1.0]), type_))
    graph.backprop()
    make(0.125).update(graph)
    assert w.val().dtype == type_
    np.testing.assert_allclose(np.asarray(w.val(), np.float32), [1.0, 0.875])


def test_the_norm_of_sixteen_bit_gradients_does_not_overflow(graph: ExpressionGraph) -> None:
    w = graph.param("w", (1000,), inits.zeros(), "float16")
    mgraph.sum(w * 100.0)
    graph.backprop()
    assert float(Sgd(0.001).update(graph)) == pytest.approx(100 * 1000**0.5)


def test_optimizers_of_marians_options() -> None:
    adam = mgraph.optimizer_from_options({})
    assert isinstance(adam, Adam) and (adam.learn_rate, adam.clip_norm, adam.beta2) == (1e-4, 1, 0.999)
    given = {"learn-rate": 3e-4, "optimizer_params": [0.9, 0.98, 1e-9], "clip_norm": 0}
    adam = mgraph.optimizer_from_options(given)
    assert isinstance(adam, Adam)
    assert (adam.learn_rate, adam.beta2, adam.eps, adam.clip_norm) == (3e-4, 0.98, 1e-9, 0)
    sgd = mgraph.optimizer_from_options({"optimizer": "sgd", "learn-rate": 0.1, "clip-norm": 0})
    np.testing.assert_array_equal(descend(sgd), descend(Sgd(0.1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimiser": "sgd"}, "did you mean 'optimizer'"),
        ({"exponential-smoothing": 1e-4}, "not an option of an optimizer"),
        ({"optimizer": "lion"}, r"expected an optimizer of sgd, adagrad, adam, got 'lion'; mgraph.Optax"),
        ({"optimizer-params": "fast"}, "expected numbers, got 'fast'"),
        ({"optimizer-params": [10**400]}, "expected numbers, got"),
        ({"optimizer-params": [1.5]}, "beta1"),
    ],
)
def test_options_that_make_no_optimizer(options: dict[str, object], message: str) -> None:
    with pytest.raises(mgraph.ArgumentError, match=message):
        mgraph.optimizer_from_options(options)


@pytest.mark.parametrize("optimizer", [Sgd(0.1), Adagrad(0.1), Adam(0.1)], ids=str)
def test_later_steps_of_a_loop_that_is_not_compiled_compile_nothing(optimizer: mgraph.Optimizer) -> None:
    params = {"p": jax.numpy.array(START), "q": jax.numpy.ones((2, 3))}
    state = optimizer.init(params)
    compiled: list[str] = []

    def listen(event: str, seconds: float, **facts: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(facts))

    counts = []
    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for _ in range(3):
            _, state = optimizer.moves(params, state, params, 0.1)
            counts.append(len(compiled))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert counts[0] > 0 and counts[1] == counts[2]


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("clip_norm", -1.0, "expected a clip norm of at least 0 and a finite number, got -1.0"),
        ("eps", "x", "expected an eps of at least 0 and a finite number, got 'x'"),
        ("beta1", 1.5, "expected a beta1 of at least 0 and less than 1, got 1.5"),
        ("beta2", None, "expected a beta2 of at least 0 and less than 1, got None"),
        ("decay", float("nan"), "expected a decay of at least 0 and a finite number, got nan"),
    ],
)
def test_a_setting_is_checked_whenever_it_is_set(name: str, wrong: object, told: str) -> None:
    """A negative bound of the norm would turn gradients round."""
    optimizer = Adam(0.1)
    before = repr(optimizer)
    with pytest.raises(ArgumentError, match=told):
        setattr(optimizer, name, wrong)
    assert repr(optimizer) == before
    setattr(optimizer, name, 0.5)
    assert getattr(pickle.loads(pickle.dumps(optimizer)), name) == 0.5


def test_what_an_update_cannot_take_is_told(graph: ExpressionGraph) -> None:
    p = graph.param("p", (3,), inits.ones())
    mgraph.sum(p * p)
    graph.backprop()
    optimizer = Adam(0.1)
    for cost in ("x", jax.random.key(0)):
        with pytest.raises(ArgumentError, match="the cost of an update takes"):
            optimizer.update(graph, cost)
    optimizer.state = "x"
    with pytest.raises(ArgumentError, match="'x' of type str"):
        optimizer.update(graph)
    optimizer.reset()
    optimizer.betas = [0.9, 0.98]  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match=r"betas: expected a number, a string or a tuple, got \[0\.9"):
        optimizer.update(graph)
    np.testing.assert_array_equal(p.val(), 1)
