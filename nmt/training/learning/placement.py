"""The placement of training arrays: on one device, or on several that share each update."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from nmt.models import Model
from nmt.settings.option import OptionError
from nmt.text.batches import Batch
from nmt.training.learning.batch_arrays import Arrays, specs_of
from nmt.training.learning.division import divided_axes, warn_of_whole_vocabularies
from nmt.training.update import Tensors

DATA, MODEL = "data", "model"
"""The axes of the mesh: groups of devices divide the sentences, and the devices of a group divide the
parameters."""
WHOLE: Mapping[str, int] = MappingProxyType({})

Tree = TypeVar("Tree")


class Placement:
    """Everything on JAX's default device."""

    groups: int = 1
    """How many groups of devices share an update; each computes some of the sentences."""
    parts: int = 1
    """How many devices are in a group."""
    sums_later: bool = False
    """Whether each group keeps its own gradient until all batches of an update are computed."""

    def of_model(self, model: Model) -> Placement:
        """The placement for this model. ``OptionError`` if it cannot be divided among the devices of a
        group."""
        return self

    @property
    def key(self) -> Hashable:
        """Equal for placements that need the same programs."""
        return None

    def even(self, batch: Batch) -> Batch:
        """A batch with equally many rows for each group; added rows are copies of the first that do not
        count."""
        return batch.with_rows(-(-batch.shape[0] // self.groups) * self.groups)

    def batch(self, batch: Arrays) -> Arrays:
        """The arrays of a batch, copied to their devices while the devices compute."""
        return jax.device_put(batch)

    def everywhere(self, numbers: np.ndarray) -> jax.Array:
        """The scalars or random draws that are arguments of an update, on every device."""
        return jax.device_put(numbers)

    def batch_specs(self, batch: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes, types and shardings of the arrays of a batch."""
        return specs_of(batch)

    def specs(self, tree: Tree) -> Tree:
        """Shapes, types and shardings of the arrays that an update changes."""
        own = SingleDeviceSharding(_default_device())
        return _map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=own), tree)

    def placed(self, tree: Tree) -> Tree:
        """The arrays that an update changes, on their devices."""
        # Stored programs return arrays that are bound to their device. If the first arrays were not, JAX
        # would compile each program twice.
        device = _default_device()
        return _map(lambda array: jax.device_put(array, device), tree)

    def pinned(self, tree: Tree) -> Tree:
        """Inside a program: its results, with the sharding that the next update expects."""
        return tree

    def whole(self, tree: Tree) -> Tree:
        """Inside a program: parameters or gradients, gathered on every group of devices."""
        return tree

    def by_groups(self, function: Callable[..., Tree], params: Tensors, batch: Arrays, *rest: Any) -> Tree:
        """Inside a program: ``function(params, batch, ...)``. Each of several groups computes it for its part
        of the batch, without any exchange between groups; results then have a leading axis of groups."""
        return function(params, batch, *rest)

    def summed(self, tree: Tree) -> Tree:
        """Inside a program: the sums of results of ``by_groups``."""
        return tree

    def pinned_by_group(self, tree: Tree) -> Tree:
        """Inside a program: results of ``by_groups``, each kept where it was computed."""
        return tree

    def specs_by_group(self, tree: Tree) -> Tree:
        """Shapes, types and shardings of gradients like these, if each group has its own."""
        return self.specs(tree)

    def fetched(self, tree: Tree) -> Tree:
        """Unsharded numpy arrays, on CPUs views of the device's buffers. All processes must call this."""
        return _map(np.asarray, jax.device_get(tree))

    def local(self, tensors: Tensors) -> Tensors:
        """The parameters for a program on JAX's default device. All processes must call this."""
        return tensors

    def held(self, tree: Any) -> int:
        """The bytes of these arrays on each device."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


class SharedPlacement(Placement):
    """Splits the sentences of a batch among several devices, or among groups of ``tensor_parallel`` devices
    that split the parameters (``divided_axes``).

    Programs are the same as on one device, with the same random draws; XLA inserts the communication. Each
    group holds all parameters, moments and averages, or with ``shard_state`` only a part of each, split along
    the longest axis that divides evenly, and gathers the parameters for each update (Rajbhandari et al. 2020,
    ZeRO). Gradients are exchanged once per update, but with ``shard_state`` once for each of its batches, so
    that no device holds all gradients for longer.

    devices: of all processes, in the order of their share of the sentences; the devices of a group are
    adjacent. axes: along which each parameter is divided in a group, by name. ``OptionError`` for groups of
    unequal size.
    """

    def __init__(
        self,
        devices: Sequence[jax.Device],
        *,
        shard_state: bool = False,
        tensor_parallel: int = 1,
        axes: Mapping[str, int] = WHOLE,
    ) -> None:
        if len(devices) % tensor_parallel:
            raise OptionError(
                f"--tensor-parallel {tensor_parallel}: expected a number that divides the number of devices,"
                f" which is {len(devices)}"
            )
        self.groups, self.parts = len(devices) // tensor_parallel, tensor_parallel
        self.sums_later = self.groups > 1 and not shard_state
        self._devices, self._shard_state, self._axes = devices, shard_state, axes
        self._mesh = Mesh(np.array(devices).reshape(self.groups, self.parts), (DATA, MODEL))
        self._everywhere = NamedSharding(self._mesh, PartitionSpec())
        self._by_rows = NamedSharding(self._mesh, PartitionSpec(DATA))

    def of_model(self, model: Model) -> SharedPlacement:
        axes = divided_axes(model.options, self.parts, model.params)
        warn_of_whole_vocabularies(model.options, self.parts)
        return SharedPlacement(
            self._devices, shard_state=self._shard_state, tensor_parallel=self.parts, axes=axes
        )

    @cached_property
    def key(self) -> Hashable:
        devices: tuple[Any, ...] = tuple(self._devices)
        if jax.process_count() == 1:
            # Plain values, so that programs can be stored. Several processes must run the same program, but
            # may not have the same folder.
            devices = tuple((device.platform, device.id) for device in devices)
        return devices, self.parts, self._shard_state, tuple(sorted(self._axes.items()))

    def batch(self, batch: Arrays) -> Arrays:
        return {name: _put(array, self._by_rows) for name, array in batch.items()}

    def everywhere(self, numbers: np.ndarray) -> jax.Array:
        return _put(numbers, self._everywhere)

    def batch_specs(self, batch: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
        return {name: _spec(spec, self._by_rows) for name, spec in specs_of(batch).items()}

    def specs(self, tree: Tree) -> Tree:
        return self._map(_spec, tree)

    def placed(self, tree: Tree) -> Tree:
        return self._map(_put, tree)

    def pinned(self, tree: Tree) -> Tree:
        return self._map(jax.lax.with_sharding_constraint, tree)

    def whole(self, tree: Tree) -> Tree:
        return self._map(jax.lax.with_sharding_constraint, tree, shard_state=False)

    def by_groups(self, function: Callable[..., Tree], params: Tensors, batch: Arrays, *rest: Any) -> Tree:
        if self.groups == 1:
            return function(params, batch, *rest)

        def own(*args: Any) -> Tree:
            return _map(lambda x: x[None], function(*args))

        everywhere, divided = PartitionSpec(), PartitionSpec(DATA)
        mapped = jax.shard_map(
            own,
            mesh=self._mesh,
            in_specs=(everywhere, divided, *[everywhere] * len(rest)),
            out_specs=divided,
            # Both axes if a group is one device: XLA then has nothing to divide, and keeps cuDNN's kernels.
            axis_names={DATA} if self.parts > 1 else {DATA, MODEL},
            check_vma=False,
        )
        found: Tree = mapped(params, batch, *rest)
        return found

    def summed(self, tree: Tree) -> Tree:
        return tree if self.groups == 1 else _map(lambda x: jnp.sum(x, 0), tree)

    def pinned_by_group(self, tree: Tree) -> Tree:
        return self._map(jax.lax.with_sharding_constraint, tree, by_group=True)

    def specs_by_group(self, tree: Tree) -> Tree:
        each = _map(lambda a: jax.ShapeDtypeStruct((self.groups, *a.shape), a.dtype), tree)
        return self._map(_spec, each, by_group=True)

    def fetched(self, tree: Tree) -> Tree:
        if jax.process_count() == 1:
            return super().fetched(tree)
        # One array after another: all together may not fit on a device.
        return _map(lambda array: np.asarray(jax.device_put(array, self._everywhere)), tree)

    def local(self, tensors: Tensors) -> Tensors:
        return self.fetched(tensors)

    def held(self, tree: Any) -> int:
        return sum(
            leaf.dtype.itemsize * int(np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=np.int64))
            for leaf in jax.tree.leaves(tree)
        )

    def _map(
        self, function: Any, tree: Tree, *, shard_state: bool | None = None, by_group: bool = False
    ) -> Tree:
        """``function(array, sharding)`` of each array. by_group: the arrays have a leading axis of groups."""
        divides = self._shard_state if shard_state is None else shard_state

        def placed(path: Any, array: Any) -> Any:
            shape = np.shape(array)
            if by_group:
                return function(array, self._by_group(path, shape[1:]))
            return function(array, self._sharding(path, shape, divides))

        mapped: Tree = jax.tree_util.tree_map_with_path(placed, tree)
        return mapped

    def _sharding(self, path: Sequence[Any], shape: tuple[int, ...], shard_state: bool) -> NamedSharding:
        """The sharding of an array, like that of the parameter named last in its path if the shape allows."""
        axes: list[str | None] = [None] * len(shape)
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        divided = self._axes.get(names[-1]) if names else None
        if divided is not None and divided < len(shape) and shape[divided] % self.parts == 0:
            axes[divided] = MODEL
        even = [i for i, size in enumerate(shape) if axes[i] is None and size and size % self.groups == 0]
        if shard_state and even:
            axes[max(even, key=lambda i: shape[i])] = DATA
        while axes and axes[-1] is None:
            axes.pop()
        return NamedSharding(self._mesh, PartitionSpec(*axes))

    def _by_group(self, path: Sequence[Any], shape: tuple[int, ...]) -> NamedSharding:
        """The sharding of an array of which each group has its own."""
        within = self._sharding(path, shape, False).spec
        return NamedSharding(self._mesh, PartitionSpec(DATA, *within))


ONE_DEVICE = Placement()


def placement_on(
    devices: Sequence[jax.Device], *, shard_state: bool = False, tensor_parallel: int = 1
) -> Placement:
    """The placement for updates shared by these devices; a single device is JAX's default device."""
    if len(devices) == tensor_parallel == 1:
        return ONE_DEVICE
    return SharedPlacement(devices, shard_state=shard_state, tensor_parallel=tensor_parallel)


def _default_device() -> jax.Device:
    (device,) = jnp.zeros(()).devices()
    return device


def _map(function: Any, tree: Tree) -> Tree:
    mapped: Tree = jax.tree.map(function, tree)
    return mapped


def _spec(array: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    """The array with this sharding; each process has the whole array, or its own shard."""
    elsewhere = isinstance(array, jax.Array) and not array.is_fully_addressable
    if jax.process_count() == 1 or elsewhere:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
