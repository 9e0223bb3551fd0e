"""The time that messages take."""

from typing import NamedTuple

import jax

from gcjax import _checks


class Network(NamedTuple):
    """Time between a worker and the server; each entry a number or f32[W], one a worker.

    The default network is instantaneous.

    Attributes:
      latency: seconds before a message of any size arrives.
      upload: seconds that a full gradient of d numbers takes towards the server, besides the latency.
      download: seconds that the parameters take towards a worker, besides the latency.
    """

    latency: float | jax.Array = 0.0
    upload: float | jax.Array = 0.0
    download: float | jax.Array = 0.0

    def checked(self) -> "Network":
        """The network itself, or a `ValueError` if a value is negative or NaN."""
        for name, value in zip(self._fields, self, strict=True):
            _checks.number(name, value, minimum=0.0)
        return self

    def send_seconds(self, fraction: float | jax.Array = 1.0) -> float | jax.Array:
        """Seconds for sending `fraction` of a full gradient to the server."""
        return self.latency + fraction * self.upload

    def receive_seconds(self) -> float | jax.Array:
        """Seconds for receiving the parameters."""
        return self.latency + self.download


def constant_network(latency: float = 0.0, upload: float = 0.0, download: float = 0.0) -> Network:
    """A network whose times do not change; seconds, each a number or f32[W].

    Args:
      latency: seconds before a message of any size arrives.
      upload: seconds that a full gradient takes towards the server, besides the latency.
      download: seconds that the parameters take towards a worker, besides the latency.

    Raises:
      ValueError: if a value is negative or NaN.
    """
    return Network(latency, upload, download).checked()
