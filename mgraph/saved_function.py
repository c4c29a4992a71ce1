"""Functions of a graph in files: they run and are differentiated without the graph or its operators' code.

A file is an ``.npz`` of items: the parameters' values under their names, ``special:function.json`` with the
signature, and ``special:function.program``, the pure function and its derivatives by the operators' rules as
exported by ``jax.export``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.export
import numpy as np

from .arrays import checked_seed
from .draws import run_draws, run_key
from .errors import ArgumentError, GraphError, MGraphError, ModelFileError
from .files.items import SPECIAL, read_npz, write_npz
from .files.json_text import read_json
from .files.paths import path_text
from .names import counted
from .places import here
from .signature import Inputs, Signature, fitting
from .specs import Spec, is_real, spec_of
from .types import as_type

Path = str | os.PathLike[str]
HEADER, PROGRAM = SPECIAL + "function.json", SPECIAL + "function.program"
VERSION = 1
MAX_ORDER = 4
"""How many times a saved function can be differentiated, at most."""
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class Pure(Protocol):
    """A function that can be saved."""

    signature: Signature
    seed: int

    def values(self) -> dict[str, jax.Array]: ...

    def pure(self, params: Mapping[str, Any], inputs: Inputs = (), key: jax.Array | None = None) -> Any: ...


def save_function(function: Pure, path: Path, *, order: int, platforms: Sequence[str]) -> None:
    """Write ``function`` to ``path``; see ``Function.save``."""
    if not isinstance(order, int) or not 0 <= order <= MAX_ORDER:
        raise ArgumentError(f"expected an order of derivatives from 0 to {MAX_ORDER}, got {order!r}")
    listed = isinstance(platforms, Sequence) and not isinstance(platforms, str) and len(platforms) > 0
    if not listed or any(name not in PLATFORMS for name in platforms):
        raise ArgumentError(f"expected a list of platforms of {', '.join(PLATFORMS)}, got {platforms!r}")
    signature = function.signature
    reserved = [name for name in signature.parameters if name.startswith(SPECIAL)]
    if reserved:
        raise ArgumentError(f"a function with a parameter {reserved[0]!r} cannot be saved: rename it")
    key = jax.random.key_data(jax.random.key(0))

    def flat(params: Any, inputs: Any, key_data: Any) -> Any:
        chosen = jax.random.wrap_key_data(key_data) if signature.random else None
        results = function.pure(params, inputs, chosen)
        return [results] if signature.single else list(results)

    with jax.enable_x64(signature.wide):
        structs = [
            {name: spec.struct for name, spec in specs.items()}
            for specs in (signature.parameters, signature.inputs)
        ]
        exported = jax.export.export(jax.jit(flat), platforms=list(platforms))(*structs, key)
        program = bytes(exported.serialize(vjp_order=order))
    header = {
        "version": VERSION,
        "inputs": _written(signature.inputs),
        "parameters": _written(signature.parameters),
        "single": signature.single,
        "random": signature.random,
        "wide": signature.wide,
        "seed": function.seed,
        "generator": str(jax.random.key_impl(jax.random.key(0))),
        "order": order,
        "platforms": list(platforms),
    }
    special = {HEADER: json.dumps(header).encode(), PROGRAM: program}
    items = {name: _storable(value) for name, value in function.values().items()}
    write_npz(path, items | {name: np.frombuffer(data, np.uint8) for name, data in special.items()})


class SavedFunction:
    """A function that was read from a file by ``load_function``.

    Calling it runs the program with the file's parameter values, which ``values()`` returns and
    ``replace_parameter`` replaces. ``pure(params, inputs, key)`` works under ``jax.jit``, ``jax.grad`` and
    ``jax.vjp`` like that of the ``Function``, and is differentiated by the same rules, up to the saved order
    (``ArgumentError`` beyond it). It does not work under ``jax.vmap`` or ``jax.jvp``, which exported programs
    do not support.
    """

    def __init__(
        self, signature: Signature, program: jax.export.Exported, values: Mapping[str, Any], seed: int
    ) -> None:
        self.signature = signature
        self.seed = seed
        self._program = program
        self._values = dict(values)
        self._runs = itertools.count(1)
        self._compiled = jax.jit(program.call)
        self._order = _order_of(program)
        self.parameters = tuple(signature.parameters)
        """Names of the parameters."""

    def __reduce__(self) -> Any:
        # called by copy and pickle
        raise GraphError(
            "a function that was loaded cannot be copied or pickled; mgraph.load_function(path) reads it "
            f"again{here()}"
        )

    @property
    def inputs(self) -> dict[str, Spec]:
        """Shape and element type of each input, in order."""
        return dict(self.signature.inputs)

    def values(self) -> dict[str, jax.Array]:
        """The parameters' values by name."""
        return dict(self._values)

    def pure(self, params: Mapping[str, Any], inputs: Inputs = (), key: jax.Array | None = None) -> Any:
        """The outputs as a pure function of parameters, inputs and a random key."""
        signature = self.signature
        signature.check_pure(key)
        data = jax.random.key_data(jax.random.key(0) if key is None else key)
        given = signature.checked_parameters(params), signature.checked_inputs(inputs)
        found = self._program.call(*_limited(given, self._order, self._order), data)
        return signature.formed(_limited(found, self._order, self._order))

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs for these arguments, positional in the order of ``inputs`` or by name."""
        inputs = self.signature.of_call(args, named)
        draws = run_draws(self.seed, next(self._runs) if self.signature.random else 0)
        with jax.enable_x64(self.signature.wide):
            key = jax.random.key_data(run_key(draws))
            return self.signature.formed(self._compiled(self._values, inputs, key))

    def replace_parameter(self, name: str, value: Any) -> SavedFunction:
        """This function with another value for a parameter, of the parameter's shape and element type.

        ``ArgumentError`` for an unknown name, ``ShapeError`` or ``ElementTypeError`` if it does not fit.
        """
        if not isinstance(name, str) or name not in self.signature.parameters:
            raise ArgumentError(f"the function has no parameter {name!r}; it has {list(self.parameters)}")
        with jax.enable_x64(self.signature.wide):
            fit = fitting(f"parameter {name!r}", value, self.signature.parameters[name])
            values = self._values | {name: jax.numpy.array(fit)}
        return SavedFunction(self.signature, self._program, values, self.seed)

    def __repr__(self) -> str:
        return f"SavedFunction(inputs={self.inputs}, {len(self.parameters)} parameters)"


def load_function(path: Path) -> SavedFunction:
    """The function that ``graph.function(...).save(path)`` wrote.

    It needs neither the graph nor the code of its operators. A file is a program: load it only if you trust
    its source. ``ModelFileError`` for a damaged file, a file of another version, and a program for other
    platforms or of a version of JAX that this one does not read.
    """
    name = path_text(path)
    items = read_npz(path)
    try:
        header = read_json(items.pop(HEADER).tobytes())
        program = items.pop(PROGRAM).tobytes()
    except (KeyError, ValueError):
        raise ModelFileError(f"{name} holds no function; function.save(path) writes one") from None
    if not isinstance(header, dict) or header.get("version") != VERSION:
        raise ModelFileError(f"{name}: expected a function of version {VERSION}, got another version")
    platforms = header.get("platforms")
    if not isinstance(platforms, list) or jax.default_backend() not in _backends(platforms):
        raise ModelFileError(
            f"{name}: its program is for {platforms}, this is {jax.default_backend()}; "
            "save it with platforms=[...] that name both"
        )
    try:
        signature = Signature(
            _read(header["inputs"]),
            _read(header["parameters"]),
            *(bool(header[key]) for key in ("single", "random", "wide")),
        )
        seed, generator = checked_seed(header["seed"]), str(header["generator"])
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:
        raise ModelFileError(f"{name}: its program cannot be read: {error}") from None
    if signature.random and generator != str(jax.random.key_impl(jax.random.key(0))):
        raise ModelFileError(
            f"{name}: it draws random numbers by {generator}; set jax_default_prng_impl to that"
        )
    with jax.enable_x64(signature.wide):
        stored = {key: _restored(items.get(key), spec) for key, spec in signature.parameters.items()}
        values = {key: jax.numpy.asarray(value) for key, value in stored.items() if value is not None}
        try:
            return SavedFunction(signature, exported, signature.checked_parameters(values), seed)
        except MGraphError as error:
            raise ModelFileError(f"{name}: {error}") from None


def _order_of(program: jax.export.Exported) -> int:
    """How many times a program can be differentiated."""
    return 1 + _order_of(program.vjp()) if program.has_vjp() else 0


def _limited(values: Any, order: int, left: int) -> Any:
    """``values``, a pytree of arrays, which can be differentiated ``left`` more times, out of ``order``."""
    leaves, structure = jax.tree.flatten(values)
    floats = [i for i, leaf in enumerate(leaves) if is_real(leaf)]

    @jax.custom_vjp
    def same(chosen: list[Any]) -> list[Any]:
        return chosen

    def forward(chosen: list[Any]) -> tuple[list[Any], None]:
        return _limited(chosen, order, left - 1) if left else chosen, None

    def reverse(_: None, adjoints: list[Any]) -> tuple[list[Any]]:
        if not left:
            more = f"; function.save(path, order={order + 1}) saves more" if order < MAX_ORDER else ""
            raise ArgumentError(
                f"this function can be differentiated {counted(order, 'time')}, because it was saved with "
                f"order={order}{more}{here()}"
            )
        return (_limited(adjoints, order, left - 1),)

    same.defvjp(forward, reverse)
    for i, value in zip(floats, same([leaves[i] for i in floats]), strict=True):
        leaves[i] = value
    return jax.tree.unflatten(structure, leaves)


def _backends(platforms: Sequence[str]) -> list[str]:
    """JAX's names of the backends for these platforms."""
    return ["gpu" if name in ("cuda", "rocm") else name for name in platforms]


def _written(specs: Mapping[str, Spec]) -> list[list[Any]]:
    return [[name, list(spec.shape), spec.type.value] for name, spec in specs.items()]


def _read(entries: Any) -> dict[str, Spec]:
    return {name: spec_of(tuple(map(int, shape)), as_type(kind)) for name, shape, kind in entries}


def _storable(value: jax.Array) -> np.ndarray:
    """An array as a file can hold it: bfloat16 and bool as unsigned integers with the same bytes."""
    array = np.asarray(value)
    plain = array.dtype.kind in "fiu" and array.dtype.isbuiltin == 1
    return array if plain else array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _restored(array: np.ndarray | None, spec: Spec) -> np.ndarray | None:
    """The inverse of ``_storable``; it also restores signed integers that are read as unsigned ones."""
    if array is None or array.dtype == spec.type.dtype or array.dtype.itemsize != spec.type.dtype.itemsize:
        return array
    return array.view(spec.type.dtype)
