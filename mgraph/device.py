"""Devices by Marian's way of naming them: a number and ``"cpu"`` or ``"gpu"``."""

from __future__ import annotations

import jax

from .errors import DeviceError


def find_device(number: int, kind: str) -> jax.Device:
    """The JAX device ``number`` of ``kind``; ``DeviceError`` that lists what there is."""
    if kind not in ("cpu", "gpu"):
        raise DeviceError(f'expected the device type "cpu" or "gpu", got {kind!r}')
    try:
        devices = jax.devices(kind)
    except RuntimeError:
        devices = []
    if not 0 <= number < len(devices):
        raise DeviceError(f"there is no device {kind}{number} here; available: {_available()}")
    return devices[number]


def device_name(device: jax.Device | None) -> str:
    """``cpu0`` or ``gpu1``, as Marian prints it."""
    device = device or jax.devices()[0]
    return f"{'cpu' if device.platform == 'cpu' else 'gpu'}{device.id}"


def _available() -> str:
    names = []
    for kind in ("cpu", "gpu"):
        try:
            names += [f"{kind}{i}" for i in range(len(jax.devices(kind)))]
        except RuntimeError:
            continue
    return ", ".join(names)
