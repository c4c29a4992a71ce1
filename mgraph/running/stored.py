"""Traced programs in a folder, so that a later process need not trace them.

JAX's compilation cache saves a later process XLA's work, but its keys are made from traced programs, and
tracing may take longer than everything else. This module keeps the traced programs themselves in the cache's
folder, as StableHLO (``jax.export``), under names that are known without tracing. A name is made from the
plan's key, the source files that it depends on, the versions of JAX, the kind of device, and the settings of
JAX that tracing depends on.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.export
import numpy as np
from jaxlib.version import __version__ as _JAXLIB

from ..device import platform_of
from ..errors import first_line
from ..files.items import replacing

log = logging.getLogger("mgraph.programs")
T = TypeVar("T")

FOLDER, ENDING = "traced", ".stablehlo"
_DIGEST = hashlib.sha256
_PACKAGE = __name__.partition(".")[0]
_BEGUN = time.time_ns()
"""When this process began: source files changed since may differ from the code that runs."""
_KERNELS = [
    jax.export.DisabledSafetyCheck.custom_call(f"__cudnn$fmha{bias}Softmax{way}")
    for bias in ("", "ScaleBias")
    for way in ("", "Backward")
]
"""cuDNN's attention. JAX would not export calls to it, because other versions of JAX might not know it; here
each version has its own files."""
SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_debug_nans",
    "jax_debug_infs",
)
"""The settings of JAX that tracing depends on and that may differ between threads, except 64-bit types."""


def register_arrays(cls: type[T]) -> type[T]:
    """Make a dataclass of arrays a pytree that stored programs may take and return."""
    jax.tree_util.register_dataclass(cls)
    jax.export.register_pytree_node_serialization(
        cls,
        serialized_name=f"{cls.__module__}.{cls.__qualname__}",
        serialize_auxdata=lambda _: b"",
        deserialize_auxdata=lambda _: (),
    )
    return cls


def register_tuple(cls: type[T]) -> type[T]:
    """Let stored programs take and return a ``NamedTuple``."""
    named: Any = cls
    jax.export.register_namedtuple_serialization(
        named, serialized_name=f"{cls.__module__}.{cls.__qualname__}"
    )
    return cls


def folder() -> Path | None:
    """The folder of traced programs, inside that of JAX's compilation cache; None without a cache."""
    found = jax.config.jax_compilation_cache_dir if jax.config.jax_enable_compilation_cache else None
    return Path(found) / FOLDER if found and os.path.isdir(found) else None


def find(
    key: Sequence[Any], code: Sequence[str], function: Callable[..., Any], inputs: Callable[[], Any]
) -> jax.export.Exported | None:
    """The traced program of ``key``: read from the folder, or else traced and written there.

    key: says what is computed, in plain values, enumerations and dataclasses of these. code: the packages,
    besides mgraph, whose source files it depends on. function: what is computed. inputs: gives the shapes and
    types of its arguments.

    None if there is no folder, if the key holds other values, if the function cannot be exported, and if the
    default device has another platform than JAX's default. A file without a program marks a function that
    cannot be exported.
    """
    where = folder()
    if where is None or platform_of(None) != jax.default_backend():  # programs are exported for the latter
        return None
    try:
        name = _name(key, (_PACKAGE, *code))
    except TypeError as error:
        log.debug("not stored: %s", error)
        return None
    path = where / f"{name}{ENDING}"
    try:
        if (known := _read(path)) is not None:
            return _without_lapack(jax.export.deserialize(bytearray(known))) if known else None
        exporting = jax.export.export(jax.jit(lambda *args: function(*args)), disabled_checks=_KERNELS)
        exported = exporting(*inputs())
        data = exported.serialize()
    except (ImportError, NotImplementedError, ValueError) as error:
        log.debug("not stored: %s", first_line(error))
        if not isinstance(error, ImportError):  # flatbuffers may be installed later
            _write(path, b"")
        return None
    _write(path, data)
    return _without_lapack(exported)


def _without_lapack(exported: jax.export.Exported) -> jax.export.Exported:
    """A program that does not make JAX import ``scipy.linalg``, which takes 0.15 s, to initialize LAPACK: JAX
    does so before it calls any program exported for CPUs. Unchanged if the program calls LAPACK.

    Its platform needs no check, because its file's name includes the platform.
    """
    if b"lapack" in exported.mlir_module_serialized or "cpu" not in exported.platforms:
        return exported
    checks = *exported.disabled_safety_checks, jax.export.DisabledSafetyCheck.platform()
    return replace(exported, platforms=("unchecked",), disabled_safety_checks=checks)


def _read(path: Path) -> bytes | None:
    """The data written to a file; None if the file is missing or damaged."""
    with suppress(OSError):
        whole = path.read_bytes()
        data = whole[_DIGEST().digest_size :]
        return data if whole == _DIGEST(data).digest() + data else None
    return None


def _write(path: Path, data: bytes | bytearray) -> None:
    """Write data atomically to a file, after its digest, if the folder is writable."""
    with suppress(OSError):
        path.parent.mkdir(0o700, exist_ok=True)
        with replacing(path) as file:
            file.write(_DIGEST(data).digest() + data)


def _name(key: Sequence[Any], packages: Sequence[str]) -> str:
    settings = [getattr(jax.config, name) for name in ("jax_enable_x64", *SETTINGS)]
    device = platform_of(None), _device_kind()
    parts = (jax.__version__, _JAXLIB, *device, *settings, *map(_code, packages), *key)
    return _DIGEST("\n".join(_texts(parts, packages)).encode()).hexdigest()[:40]


def _device_kind() -> str:
    """The model of the devices: some models lack kernels that others have."""
    return str(jax.local_devices()[0].device_kind)


def _texts(value: Any, packages: Sequence[str]) -> Iterator[str]:
    """Text that equal values share in every process; ``TypeError`` for values that no text identifies."""
    if value is None or isinstance(value, bool | int | float | str | np.generic | np.dtype):
        yield f"{type(value).__name__} {value!r}"
        return
    if isinstance(value, tuple):
        yield f"tuple {len(value)}"
        for part in value:
            yield from _texts(part, packages)
        return
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] not in packages:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not of {', '.join(packages)}")
    yield f"{kind.__module__}.{kind.__qualname__}"
    if value is kind:
        return
    if isinstance(value, enum.Enum):
        yield value.name
    elif is_dataclass(value):
        for field in fields(value):
            yield from _texts(getattr(value, field.name), packages)
    else:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not a dataclass")


@cache
def _code(package: str) -> str:
    """A digest of the names, sizes and times of a package's source files; ``TypeError`` if they have changed
    since this process began, or are not known."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise TypeError(f"the source files of {package} are not known")
    files = [Path(spec.origin)] if spec.origin else []
    for location in spec.submodule_search_locations or ():
        files += Path(location).rglob("*.py")
    states = []
    for path in sorted({*files}):
        state = path.stat()
        if max(state.st_mtime_ns, state.st_ctime_ns) > _BEGUN:
            raise TypeError(f"{path} has changed since this process began")
        states.append(f"{path} {state.st_size} {state.st_mtime_ns}")
    return _DIGEST("\n".join(states).encode()).hexdigest()
