"""The placement of training arrays: on one device, or on several that share each update."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from nmt.text.batches import Batch
from nmt.training.learning.objective import Arrays, specs_of
from nmt.training.update import Tensors

AXIS = "devices"

Tree = TypeVar("Tree")


class Placement:
    """Everything on JAX's default device."""

    devices: int = 1
    """How many devices share an update."""

    @property
    def key(self) -> Hashable:
        """Equal for placements that need the same programs."""
        return None

    def even(self, batch: Batch) -> Batch:
        """A batch with as many rows for each device; those added are copies of the first row that do not
        count."""
        return batch.with_rows(-(-batch.shape[0] // self.devices) * self.devices)

    def batch(self, batch: Arrays) -> Arrays:
        """The arrays of a batch, copied to their devices while these compute."""
        return jax.device_put(batch)

    def everywhere(self, numbers: np.ndarray) -> jax.Array:
        """The numbers that an update is given, on every device."""
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
        # Stored programs give arrays that are bound to their device. Were the first ones not, JAX would
        # compile each program twice.
        device = _default_device()
        return _map(lambda array: jax.device_put(array, device), tree)

    def pinned(self, tree: Tree) -> Tree:
        """Inside a program: its results, with the sharding that the next update expects."""
        return tree

    def whole(self, tensors: Tensors) -> Tensors:
        """Inside a program: the parameters, gathered on every device."""
        return tensors

    def fetched(self, tree: Tree) -> Tree:
        """Copies as unsharded numpy arrays. All processes must call this."""
        return _map(np.asarray, jax.device_get(tree))

    def local(self, tensors: Tensors) -> Tensors:
        """The parameters for a program on JAX's default device. All processes must call this."""
        return tensors

    def held(self, tree: Any) -> int:
        """The bytes of these arrays on each device."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


class SharedPlacement(Placement):
    """Splits the sentences of a batch among several devices.

    Programs are the same as on one device, with the same random draws; XLA inserts the communication. Each
    device holds all parameters, or with ``shard_state`` only a part of each parameter, moment and average,
    split along the longest axis that divides evenly, and gathers the parameters for each update (Rajbhandari
    et al. 2020, ZeRO).

    devices: of all processes, in the order of their share of the sentences.
    """

    def __init__(self, devices: Sequence[jax.Device], *, shard_state: bool = False) -> None:
        self.devices, self._divided = len(devices), shard_state
        self._mesh = Mesh(np.array(devices), (AXIS,))
        self._everywhere = NamedSharding(self._mesh, PartitionSpec())
        self._by_rows = NamedSharding(self._mesh, PartitionSpec(AXIS))

    @property
    def key(self) -> Hashable:
        return self._mesh, self._divided

    def batch(self, batch: Arrays) -> Arrays:
        return {name: _put(array, self._by_rows) for name, array in batch.items()}

    def everywhere(self, numbers: np.ndarray) -> jax.Array:
        return _put(numbers, self._everywhere)

    def batch_specs(self, batch: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
        specs = specs_of(batch)
        return {
            name: jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=self._by_rows)
            for name, spec in specs.items()
        }

    def specs(self, tree: Tree) -> Tree:
        return _map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self._place(a)), tree)

    def placed(self, tree: Tree) -> Tree:
        return _map(lambda array: _put(array, self._place(array)), tree)

    def pinned(self, tree: Tree) -> Tree:
        return _map(lambda array: jax.lax.with_sharding_constraint(array, self._place(array)), tree)

    def whole(self, tensors: Tensors) -> Tensors:
        if not self._divided:
            return tensors
        return _map(lambda array: jax.lax.with_sharding_constraint(array, self._everywhere), tensors)

    def fetched(self, tree: Tree) -> Tree:
        if not self._divided or jax.process_count() == 1:
            return super().fetched(tree)
        # One array after another: all at once may not fit on a device.
        return _map(lambda array: np.asarray(jax.device_put(array, self._everywhere)), tree)

    def local(self, tensors: Tensors) -> Tensors:
        return self.fetched(tensors)

    def held(self, tree: Any) -> int:
        return sum(
            leaf.dtype.itemsize * int(np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=np.int64))
            for leaf in jax.tree.leaves(tree)
        )

    def _place(self, array: Any) -> NamedSharding:
        shape = np.shape(array)
        fitting = [i for i, size in enumerate(shape) if size and size % self.devices == 0]
        if not self._divided or not fitting:
            return self._everywhere
        longest = max(fitting, key=lambda i: shape[i])
        return NamedSharding(self._mesh, PartitionSpec(*(None,) * longest, AXIS))


ONE_DEVICE = Placement()


def placement_on(devices: Sequence[jax.Device], *, shard_state: bool = False) -> Placement:
    """The placement for updates shared by these devices; a single one is JAX's default device."""
    return SharedPlacement(devices, shard_state=shard_state) if len(devices) > 1 else ONE_DEVICE


def _default_device() -> jax.Device:
    (device,) = jnp.zeros(()).devices()
    return device


def _map(function: Any, tree: Tree) -> Tree:
    mapped: Tree = jax.tree.map(function, tree)
    return mapped


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    """The array with this sharding; each process has all of it, or its own shard."""
    elsewhere = isinstance(array, jax.Array) and not array.is_fully_addressable
    if jax.process_count() == 1 or elsewhere:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
