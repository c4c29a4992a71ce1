"""Gradient checkers, PyTorch's, JAX's, Autograd's and ours, on wrong rules.

The rules are those of ``tests/mgraph/gradcheck/public_mistakes.py``, mistakes that public projects made.
Every checker gets the same function with the same rule, at values that a test would draw (``ordinary``) and
at values where the mistake shows (``telling``). Only the rule of ``Sinc`` is right. More tables show the
smallest relative error that each checker sees, and mistakes that only PyTorch's tensors allow.

Needs ``pip install torch autograd``. (https://download.pytorch.org/whl/cpu has PyTorch without CUDA.)
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np

from benchmarks.measuring import Table
from mgraph import NaryNodeOp, UnaryNodeOp, check_gradients
from tests.mgraph.gradcheck import public_mistakes

Function = Callable[..., Any]
Arrays = Sequence[np.ndarray]


def torch_function(function: Function) -> Function:
    """A function of JAX's arrays as one of PyTorch's tensors, with its derivatives of every order."""
    import torch

    class Bridge(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.save_for_backward(*tensors)
            found = function(*(jnp.asarray(t.detach().numpy()) for t in tensors))
            return jax.tree.map(lambda a: torch.from_numpy(np.array(a)), found)

        @staticmethod
        def backward(ctx: Any, *adjoints: Any) -> Any:
            def gradients(*values: Any) -> Any:
                given, children = values[: len(adjoints)], values[len(adjoints) :]
                value, pull_back = jax.vjp(function, *children)
                return pull_back(given if isinstance(value, tuple) else given[0])

            return torch_function(gradients)(*adjoints, *ctx.saved_tensors)

    return Bridge.apply


def autograd_function(function: Function) -> Function:
    """A function of JAX's arrays as a primitive of Autograd's, with its derivatives of every order."""
    from autograd.extend import defvjp, primitive

    def rule(i: int) -> Function:
        def gradient(adjoint: Any, *children: Any) -> Any:
            return jax.vjp(function, *children)[1](jnp.asarray(adjoint))[i]

        return lambda value, *children: lambda adjoint: autograd_function(gradient)(adjoint, *children)

    found = primitive(lambda *children: np.array(function(*map(jnp.asarray, children))))
    defvjp(found, *map(rule, range(3)), argnums=range(3))
    return found


def by_torch(function: Function, arrays: Arrays, *, second: bool = False, **options: Any) -> None:
    """``torch.autograd.gradcheck`` or ``gradgradcheck`` with their own tolerances."""
    import torch

    check = torch.autograd.gradgradcheck if second else torch.autograd.gradcheck
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    check(torch_function(function), tensors, **options)


def by_jax(function: Function, arrays: Arrays, *, order: int) -> None:
    """``jax.test_util.check_grads``; a custom_vjp has no forward mode."""
    jax.test_util.check_grads(function, tuple(arrays), order=order, modes=["rev"])


def by_autograd(function: Function, arrays: Arrays, *, order: int) -> None:
    """``autograd.test_util.check_grads``."""
    from autograd.test_util import check_grads

    numbers = tuple(range(len(arrays)))
    check_grads(autograd_function(function), numbers, modes=["rev"], order=order)(*arrays)


CHECKERS: dict[str, Callable[[Function, Arrays], None]] = {
    "gradcheck": by_torch,
    "fast mode": partial(by_torch, fast_mode=True),
    "gradgrad": partial(by_torch, second=True),
    "JAX 1": partial(by_jax, order=1),
    "JAX 2": partial(by_jax, order=2),
    "Autograd 1": partial(by_autograd, order=1),
    "Autograd 2": partial(by_autograd, order=2),
}


def caught(check: Callable[..., Any], *arguments: Any) -> str:
    """What the check says; the name of the error if it cannot judge."""
    public_mistakes.MEMORY = itertools.count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check(*arguments)
        except Exception as e:
            name = type(e).__name__
            return "caught" if name in ("AssertionError", "GradcheckError") else name
    return "passed"


def by_mgraph(operator: type[NaryNodeOp], arrays: Arrays) -> str:
    """The witnesses that object."""
    public_mistakes.MEMORY = itertools.count()
    checks = check_gradients(operator, values=arrays, thorough=True).checks
    return " ".join(dict.fromkeys(w for check in checks for w in check.objections)) or "passed"


def of_floats(operator: type[NaryNodeOp], arrays: Arrays) -> tuple[Function, Arrays]:
    """The operator as a function of its floating-point children alone."""
    function = public_mistakes.custom_vjp(operator)
    floats = [a for a in arrays if a.dtype.kind == "f"]
    return (lambda *given: function(*given, *arrays[len(floats) :])), floats


def mistakes() -> None:
    """What each checker says about each mistake."""
    table = Table(["wrong rule", *CHECKERS, "mgraph"], width=32)
    for name, cases in {"ordinary": public_mistakes.ORDINARY, "telling": public_mistakes.TELLING}.items():
        for operator, arrays in cases.items():
            function, floats = of_floats(operator, arrays)
            found = [caught(check, function, floats) for check in CHECKERS.values()]
            table.row(f"{operator.__name__}, {name}", *found, by_mgraph(operator, arrays))


def scaled_sine(error: float) -> type[NaryNodeOp]:
    """A sine whose gradient is too large by a factor."""

    class ScaledSine(UnaryNodeOp):
        type = "scaled_sine"

        def forward_ops(self, x: Any) -> Any:
            return jnp.sin(x)

        def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
            return ((1 + error) * adj * jnp.cos(x),)

    return ScaledSine


class SmallSign(NaryNodeOp):
    """The wrong sign of a gradient that is 1e-8 of the other."""

    type = "small_sign"

    def forward_ops(self, a: Any, b: Any) -> Any:
        return jnp.sin(a) + 1e-8 * jnp.sin(b)

    def backward_ops(self, adj: Any, val: Any, a: Any, b: Any) -> Any:
        return adj * jnp.cos(a), -1e-8 * adj * jnp.cos(b)


def resolution() -> None:
    """The smallest error, as a power of ten, that each checker sees."""
    arrays = [np.linspace(-1.0, 1.0, 12).reshape(3, 4)]

    def smallest(sees: Callable[[type[NaryNodeOp]], bool]) -> str:
        seen = itertools.takewhile(lambda k: sees(scaled_sine(10.0**-k)), range(1, 17))
        return f"1e-{max(seen, default=0):02}"

    table = Table(["", *CHECKERS, "mgraph"], width=32)
    found = [
        smallest(lambda op, check=check: caught(check, *of_floats(op, arrays)) == "caught")
        for check in CHECKERS.values()
    ]
    table.row("a factor too large by", *found, smallest(lambda op: by_mgraph(op, arrays) != "passed"))
    pair = [*arrays, arrays[0] + 0.3]
    found = [caught(check, *of_floats(SmallSign, pair)) for check in CHECKERS.values()]
    table.row("the wrong sign of 1e-8", *found, by_mgraph(SmallSign, pair))


def of_other_types() -> None:
    """Rules that are wrong in float32 and bfloat16 only, and right ones, in these types."""
    checkers = dict(itertools.islice(CHECKERS.items(), 4))
    table = Table(["", *checkers], width=32)
    steep = [public_mistakes.TELLING[public_mistakes.SteepSigmoid][0].astype(np.float32)]
    sums = [jnp.full((500, 1), 0.7, jnp.bfloat16), jnp.ones((1, 1), jnp.bfloat16)]
    wrong = map(public_mistakes.custom_vjp, (public_mistakes.SteepSigmoid, public_mistakes.Scaled))
    right = (lambda x: jax.nn.sigmoid(25 * x), jnp.multiply)
    for name, functions in {"wrong": wrong, "right": right}.items():
        for function, arrays in zip(functions, (steep, sums), strict=True):
            found = [caught(check, function, arrays) for check in checkers.values()]
            table.row(f"{arrays[0].dtype}, {name}", *found)


def of_tensors_only() -> None:
    """Mistakes that JAX's arrays do not allow, or leave to JAX."""
    import torch

    class Overwriting(torch.autograd.Function):
        """Writes its gradient over the adjoint. Liger-Kernel, issue 370."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx: Any, adjoint: Any) -> Any:
            return adjoint.mul_(torch.cos(ctx.saved_tensors[0]))

    class NeedsOne(torch.autograd.Function):
        """Two outputs; the rule needs an adjoint of one of them."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            given = [(factor, a) for factor, a in ((2, first), (3, second)) if a is not None]
            return torch.stack([factor * a for factor, a in given]).sum(0)

    x = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck
    table = Table(["of PyTorch alone", "gradcheck"], width=60)
    table.row("the adjoint is overwritten", caught(check, Overwriting.apply, x))
    residual = caught(check, lambda x: x + Overwriting.apply(x), x)
    table.row("the same next to a residual connection", residual)
    table.row("outputs without adjoints", caught(check, NeedsOne.apply, x))
    defined = partial(check, check_undefined_grad=False)
    table.row("the same, check_undefined_grad=False", caught(defined, NeedsOne.apply, x))
    hosted = partial(check, torch_function(jnp.sin))
    table.row("a rule in NumPy", caught(hosted, x))
    table.row("the same, check_batched_grad", caught(partial(hosted, check_batched_grad=True), x))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gradient_checkers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    mistakes()
    resolution()
    of_other_types()
    of_tensors_only()


if __name__ == "__main__":
    main()
