"""Where the arrays of training lie: on one device, or on several that share each update."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nmt.text.batches import Batch
from nmt.training.learning.objective import Arrays, arrays, specs_of
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

    def batch(self, batch: Batch) -> Arrays:
        """A batch as the arguments of a program."""
        return arrays(batch)

    def batch_specs(self, batch: Batch) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes, types and places of what ``batch`` gives."""
        return specs_of(arrays(batch))

    def specs(self, tree: Tree) -> Tree:
        """Shapes, types and places of arrays that an update changes."""
        return _map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), tree)

    def placed(self, tree: Tree) -> Tree:
        """Arrays that an update changes, put where they belong."""
        return tree

    def pinned(self, tree: Tree) -> Tree:
        """In a program: what it returns, so that it lies where the next update looks for it."""
        return tree

    def whole(self, tensors: Tensors) -> Tensors:
        """In a program: parameters, each gathered on every device."""
        return tensors

    def fetched(self, tree: Tree) -> Tree:
        """Copies of arrays as whole numpy arrays. All processes must ask for them."""
        return _map(np.asarray, jax.device_get(tree))

    def local(self, tensors: Tensors) -> Tensors:
        """Parameters for a program on JAX's default device. All processes must ask for them."""
        return tensors

    def held(self, tree: Any) -> int:
        """Bytes of the arrays that each device holds."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


class SharedPlacement(Placement):
    """The sentences of a batch are divided among several devices.

    Programs stay the same: they compute as if on one device, with the same random draws, and XLA lets the
    devices exchange what they lack. Each holds all parameters; or with ``shard_state`` its part of each array
    of parameters, moments and averages, along the longest axis that divides evenly, and gathers the
    parameters for each update (Rajbhandari et al. 2020, ZeRO).

    devices: of all processes, in the order in which they take sentences.
    """

    def __init__(self, devices: Sequence[jax.Device], *, shard_state: bool = False) -> None:
        self.devices, self._divided = len(devices), shard_state
        self._mesh = Mesh(np.array(devices), (AXIS,))
        self._everywhere = NamedSharding(self._mesh, PartitionSpec())
        self._by_rows = NamedSharding(self._mesh, PartitionSpec(AXIS))

    @property
    def key(self) -> Hashable:
        return self._mesh, self._divided

    def batch(self, batch: Batch) -> Arrays:
        """A batch as the arguments of a program. If its rows do not divide evenly there are more of them,
        that repeat the first and count nothing."""
        return {name: _put(array, self._by_rows) for name, array in arrays(self._even(batch)).items()}

    def batch_specs(self, batch: Batch) -> dict[str, jax.ShapeDtypeStruct]:
        specs = specs_of(arrays(self._even(batch)))
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

    def _even(self, batch: Batch) -> Batch:
        return batch.with_rows(-(-batch.shape[0] // self.devices) * self.devices)

    def _place(self, array: Any) -> NamedSharding:
        """For an array that an update changes."""
        shape = np.shape(array)
        fitting = [i for i, size in enumerate(shape) if size and size % self.devices == 0]
        if not self._divided or not fitting:
            return self._everywhere
        longest = max(fitting, key=lambda i: shape[i])
        return NamedSharding(self._mesh, PartitionSpec(*(None,) * longest, AXIS))


ONE_DEVICE = Placement()


def placement_on(devices: Sequence[jax.Device], *, shard_state: bool = False) -> Placement:
    """The placement for updates that these devices share; one device is JAX's default one."""
    return SharedPlacement(devices, shard_state=shard_state) if len(devices) > 1 else ONE_DEVICE


def _map(function: Any, tree: Tree) -> Tree:
    mapped: Tree = jax.tree.map(function, tree)
    return mapped


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    """The array where the sharding says; each process has the whole, or else its own part of it."""
    elsewhere = isinstance(array, jax.Array) and not array.is_fully_addressable
    if jax.process_count() == 1 or elsewhere:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
