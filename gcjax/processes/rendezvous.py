"""Where the processes of a group meet, and which of them this one is: said by hand, or by the launcher."""

import ipaddress
import os
import re
from typing import Any, NamedTuple

from gcjax import _validate

_ADDRESS = re.compile(r"(\[[^\[\]]+\]|[^:/\s\[\]]+):(\d{1,5})", re.ASCII)
_BY_HAND = "--coordinator HOST:PORT --num-processes N --process-id I"
_HINT = f"Start each process with {_BY_HAND}."


class Rendezvous(NamedTuple):
    """One process's place in a group.

    Attributes:
      address: `HOST:PORT`, a free port of the machine of process 0.
      num_processes: the processes of the group.
      process_id: which one this is, from 0.
      local_devices: the numbers of the devices that this process uses; all of its machine if None.
    """

    address: str
    num_processes: int
    process_id: int
    local_devices: tuple[int, ...] | None = None

    @property
    def host(self) -> str:
        """The host of process 0."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port on which process 0 listens."""
        return int(self.address.rpartition(":")[2])

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach process 0, by what the address says; other names are not looked up."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can be reached by the name or number of a host; other names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address_of(host: str, port: int | str) -> str:
    """HOST:PORT, with brackets around a number of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: Any, *, min_port: int = 1) -> str | None:
    """The host of HOST:PORT, without the brackets of IPv6; None if it is anything else, or has a lower port."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    return match[1].strip("[]") if match and min_port <= int(match[2]) < 2**16 else None


def rendezvous(
    coordinator: str | None, num_processes: int | None, process_id: int | None, timeout: float
) -> Rendezvous:
    """This process's place, from what was said by hand or else from the launcher that JAX detects.

    Args:
      coordinator: `HOST:PORT` of process 0.
      num_processes: the processes of the group.
      process_id: which one this is.
      timeout: seconds that the detection may take, where it has to ask the network.

    Raises:
      ValueError: if only some of the three are given, or one is wrong, or nothing is detected.
    """
    option_values = (coordinator, num_processes, process_id)
    if all(value is None for value in option_values):
        return _detect_rendezvous(timeout)
    if coordinator is None or num_processes is None or process_id is None:
        option_names = ("coordinator", "num-processes", "process-id")
        missing_options = ", ".join(
            f"--{name}" for name, value in zip(option_names, option_values, strict=True) if value is None
        )
        raise ValueError(
            f"The processes of a group are given by all of {_BY_HAND}, or by none; missing: {missing_options}."
        )
    num_processes = _validate.integer("num-processes", num_processes, minimum=1)
    process_id = _validate.integer(
        "process-id", process_id, maximum=num_processes - 1, hint="Processes are counted from 0."
    )
    return Rendezvous(_valid_address(coordinator), num_processes, process_id)


def _valid_address(text: str) -> str:
    """The text; a `ValueError` unless it is HOST:PORT."""
    if host_of(text) is None:
        raise ValueError(
            f"coordinator must be HOST:PORT, a free port of the machine of process 0, e.g. 10.0.0.1:1234; got {text!r}."
        )
    return text


def _detect_rendezvous(timeout: float) -> Rendezvous:
    """The place that JAX finds: Open MPI, SLURM, TPU on GKE and GCE, Kubernetes; in this order.

    Raises:
      ValueError: if it finds none, or what it finds is not understood, or no HOST:PORT.
    """
    # JAX has no public name for this. The address must be known before jax.distributed.initialize uses it,
    # since that ends the process where nobody answers.
    from jax._src.clusters import ClusterEnv

    try:
        detected: tuple[Any, ...] = ClusterEnv.auto_detect_unset_distributed_params(
            os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, max(1, int(timeout))
        )
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"The launcher of the processes was detected, but not understood: {error}. {_HINT}") from error
    if None in detected[:3]:  # the address, the number of processes, the id of this one
        raise ValueError(f"No launcher of several processes (SLURM, Open MPI, TPU pod, GKE) was detected. {_HINT}")
    address, num_processes, process_id, device_ids = detected
    does_jax_know_devices = os.environ.get("JAX_LOCAL_DEVICE_IDS")  # which JAX reads by itself
    if device_ids is None or does_jax_know_devices:
        return Rendezvous(_valid_address(address), num_processes, process_id)
    return Rendezvous(_valid_address(address), num_processes, process_id, local_devices=tuple(device_ids))
