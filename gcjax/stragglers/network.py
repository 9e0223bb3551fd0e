"""The time that messages take.

Letters: W workers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory
from gcjax.stragglers.iid import Parameter
from gcjax.stragglers.transfers import shared_arrivals

Seconds = float | jax.Array


class Network(NamedTuple):
    """Time between a worker and the server.

    `latency`, `upload`, `download` and `server_upload` are each a number, or f32[W], one a worker. A message of the
    size of a full gradient (or of all parameters) is the unit of size. The default network is instantaneous. `Links`
    makes one of bandwidths in bytes a second.

    Attributes:
      latency: seconds before a message of any size arrives, besides the transfer.
      upload: seconds that the transfer of a full gradient towards the server takes on the worker's own link.
      download: seconds that the transfer of the parameters takes on the worker's own link.
      server: seconds that a full gradient takes on the server's link, which all transfers of one direction share in
        equal parts at any time; None where each transfer has a link of its own.
      service: seconds for which the server is busy with each message towards it, one after the other in the order of
        their arrival; what it sends in answer leaves after that. Exact under protocols with a rule, which the event
        queue then simulates, unless the server stops turns: a message has arrived, and makes its commit, when the
        server begins with it. Under the others, such as rounds of a code, it is added to the latency of what is sent
        to the server, so that it has arrived when the server has ended, and messages do not wait for each other. None
        for a server that takes no time.
      server_upload: seconds that a message towards the server takes on the server's link, if it is not as large as the
        parameters, which take `server`; one a worker where their messages differ in size. None if it is as large.
      fragments: f32[fragments], the share of each fragment in the parameters, where messages are of one fragment only;
        equal ones if None.
      servers: the network between the servers of groups and the central one, to which the groups are the workers, each
        with a link of its own; protocols without such servers send nothing along it. Instantaneous if None.
    """

    latency: Seconds = 0.0
    upload: Seconds = 0.0
    download: Seconds = 0.0
    server: Seconds | None = None
    service: Seconds | None = None
    server_upload: Seconds | None = None
    fragments: Any = None
    servers: "Network | None" = None

    def validated(self, num_workers: int | None = None) -> "Network":
        """The network with its sequences as arrays; a `ValueError` if a value is negative, NaN, or not one a worker.

        `num_workers` is W; how many values there are is not checked if it is None. The network between servers, whose
        workers are the groups, is checked by itself.
        """
        of_workers = self._replace(servers=None)._asdict()
        given_values = {name: value for name, value in of_workers.items() if value is not None or name not in OPTIONAL}
        network = self._replace(**{name: _valid_seconds(name, value) for name, value in given_values.items()})
        if self.servers is not None:
            network = network._replace(servers=validated_between_servers(self.servers))
        _check_one_link("server", network.server)
        _check_service(network)
        for name in ("latency", "upload", "download", "server_upload"):
            shape = () if getattr(network, name) is None else np.shape(getattr(network, name))
            if num_workers is not None and shape not in ((), (num_workers,)):
                raise ValueError(
                    f"{name} must be a number, or one for each of {num_workers} workers; got shape {shape}."
                )
        return network

    def network_for(self, params: Any) -> "Network":
        """The network itself: its times do not depend on the model."""
        del params
        return self

    def with_smaller_messages(self, share: float | np.ndarray) -> "Network":
        """The network where a message towards the server has this share of its size; parameters stay as large.

        Args:
          share: a number, or float[W], one a worker.
        """
        if self.server is None:
            return self._replace(upload=_shares_of(self.upload, share))
        return self._replace(
            upload=_shares_of(self.upload, share), server_upload=_shares_of(self.upload_seconds_of_server, share)
        )

    @property
    def upload_seconds_of_server(self) -> Any:
        """Seconds that a message of size 1 towards the server takes on the server's link; None if none is shared."""
        return self.server if self.server_upload is None else self.server_upload

    def send_seconds(self) -> Seconds:
        """Seconds for sending a full gradient while nobody else sends, and for the server to take it."""
        server_seconds = self.upload_seconds_of_server
        link_seconds = self.upload if server_seconds is None else jnp.maximum(self.upload, server_seconds)
        return self.latency + link_seconds + (0.0 if self.service is None else self.service)

    def receive_seconds(self) -> Seconds:
        """Seconds for receiving the parameters while nobody else receives."""
        return self.latency + (self.download if self.server is None else jnp.maximum(self.download, self.server))

    def arrivals_at_server(self, ready: jax.Array, size: Seconds = 1.0) -> jax.Array:
        """float[W] seconds: when messages have arrived at the server and been served; none waits for another's service.

        Args:
          ready: float[W] seconds, when each worker begins to send; inf if it does not.
          size: float[W] or a number, in full gradients.
        """
        arrivals = self._arrivals(ready, size, self.upload, self.upload_seconds_of_server)
        return arrivals if self.service is None else arrivals + jnp.asarray(self.service, ready.dtype)

    def arrivals_at_workers(self, ready: jax.Array, size: Seconds = 1.0) -> jax.Array:
        """float[W]: when the parameters, or so much of them, have arrived at workers that ask at `ready float[W]`."""
        return self._arrivals(ready, size, self.download, self.server)

    def fragment_shares(self, number: int) -> Any:
        """float[number]: the sizes of the messages of `number` fragments, in full gradients.

        Raises:
          ValueError: if the network has the shares of another number of fragments.
        """
        if self.fragments is None:
            return np.full(number, 1 / number)
        if np.shape(self.fragments) != (number,):
            raise ValueError(
                f"fragments must be the shares of {number} fragments; got shape {np.shape(self.fragments)}."
            )
        return self.fragments

    def _arrivals(
        self, ready: jax.Array, size: Parameter, link_seconds: Parameter, server_seconds: Seconds | None
    ) -> jax.Array:
        """float[W]: when messages arrive that the workers begin to send at `ready float[W]`.

        Args:
          ready: float[W], seconds; inf for a worker that sends nothing.
          size: of each message, in full gradients.
          link_seconds: that a full gradient takes on each worker's own link.
          server_seconds: that it takes on the server's link, which all share; None where nothing is shared.
        """
        size, link_seconds, latency = (  # float[W] each
            jnp.broadcast_to(jnp.asarray(number_or_array, ready.dtype), ready.shape)
            for number_or_array in (size, link_seconds, self.latency)
        )
        if server_seconds is None:
            return ready + (latency + size * link_seconds)
        return shared_arrivals(ready, size, link_seconds, jnp.asarray(server_seconds, ready.dtype)) + latency


OPTIONAL = ("server", "service", "server_upload", "fragments", "servers")
"""The entries of a network that can be None."""


def validated_between_servers(servers: Any) -> Network:
    """The network between the servers of groups and the central one, its sequences as arrays.

    Raises:
      ValueError: if it is no network, or has a link that groups share, a time of service or servers of its own, or a
        value is negative, NaN or infinite.
    """
    _validate.instance("servers", servers, Network, "gcjax.stragglers.constant_network(latency=0.1)")
    if servers.servers is not None:
        raise ValueError(f"servers must be one network, without servers of its own; got servers={servers.servers!r}.")
    check_own_links(servers)
    for entry in ("latency", "upload", "download"):
        _validate.number(f"{entry} of servers", getattr(servers, entry), finite=True)
    return servers.validated()


def check_own_links(servers: Network) -> None:
    """Raises `ValueError` unless each group has a link of its own in this network between servers."""
    value_of_entry = {entry: getattr(servers, entry) for entry in ("server", "service", "server_upload")}
    shared_entries = ", ".join(f"{entry}={value!r}" for entry, value in value_of_entry.items() if value is not None)
    if shared_entries:
        raise ValueError(
            f"servers must have a link of its own for each group; got {shared_entries}. Say latency, upload and "
            "download of the groups."
        )


class Links(NamedTuple):
    """A network by its bandwidths; the sizes of messages come from the model and the code.

    Attributes:
      latency: seconds, a number or f32[W].
      upload: bytes a second from each worker, a number or f32[W].
      download: bytes a second to each worker, a number or f32[W].
      server: bytes a second of the server's link, in each direction, which all transfers of one direction share in
        equal parts at any time; inf if they do not share one.
      service: as in `Network`.
      servers: the links between the servers of groups and the central one, which are those of the groups; or their
        times. Messages between them are as large as the parameters. Instantaneous if None.
    """

    latency: Seconds = 0.0
    upload: Seconds = np.inf
    download: Seconds = np.inf
    server: float = np.inf
    service: Seconds | None = None
    servers: "Links | Network | None" = None

    def network_for(self, params: Any) -> Network:
        """The network for a model, whose transfers take its size over the bandwidths, in seconds: 0 for those of inf.

        Args:
          params: the parameters, arrays or their shapes and dtypes; or their size in bytes, a number of Python or
            NumPy; an array without axes is a parameter.
        """
        is_number = isinstance(params, (int, float, np.number))
        size = params if is_number else memory.bytes_of_arrays(params)
        num_bytes = float(_validate.number("the size of the model in bytes", size))
        upload, download = (jnp.asarray(num_bytes / np.asarray(rate)) for rate in (self.upload, self.download))
        server_seconds = num_bytes / self.server
        servers = None if self.servers is None else self.servers.network_for(params)
        network = Network(latency=self.latency, upload=upload, download=download, service=self.service, servers=servers)
        return network._replace(server=server_seconds) if server_seconds > 0 else network


def constant_network(
    latency: Parameter = 0.0,
    upload: Parameter = 0.0,
    download: Parameter = 0.0,
    server: float | None = None,
    service: float | None = None,
    servers: Network | None = None,
) -> Network:
    """A network whose times do not change.

    Args:
      latency: seconds before a message of any size arrives; a number, or one for each worker.
      upload: seconds that a full gradient takes towards the server, besides the latency; a number, or one for each.
      download: seconds that the parameters take towards a worker, besides the latency; a number, or one for each.
      server: seconds that a full gradient takes on the server's link, which concurrent transfers share; None if they
        do not share one.
      service: seconds for which the server is busy with each message towards it; None for a server that takes no time.
      servers: the network between the servers of groups and the central one, as in `Network`; instantaneous if None.

    Raises:
      ValueError: if a value is negative or NaN, or the server is given more than one, or both a link that is shared and
        a time of service, or the network between servers is none, or one of links that groups share.
    """
    worker_values = {"latency": latency, "upload": upload, "download": download}
    valid_values = {name: _valid_seconds(name, value) for name, value in worker_values.items()}
    return Network(**valid_values, server=server, service=service, servers=servers).validated()


def links(
    *,
    latency: Parameter = 0.0,
    upload: Parameter = np.inf,
    download: Parameter = np.inf,
    server: float = np.inf,
    servers: Links | Network | None = None,
) -> Links:
    """A network by its bandwidths; the sizes of messages come from the model and the code.

    Args:
      latency: seconds before a message of any size arrives; a number, or one for each worker.
      upload: bytes a second from each worker; a number, or one for each.
      download: bytes a second to each worker; a number, or one for each.
      server: bytes a second of the server's link, in each direction, which concurrent transfers share in equal parts
        (processor sharing); inf if they do not share one.
      servers: the links between the servers of groups and the central one, as in `Links`; instantaneous if None.

    Raises:
      ValueError: if a bandwidth is zero or negative, the latency is negative, or the shared link has several ones, or
        the links between servers are none.
    """
    if servers is not None and not isinstance(servers, (Links, Network)):
        raise ValueError(f"servers must be Links or a Network; got {servers!r}. Use gcjax.stragglers.links(...).")
    for name, value in {"upload": upload, "download": download, "server": server}.items():
        _check_seconds_or_rate(f"{name} bandwidth", value, above=True)
    _check_one_link("server bandwidth", server)
    return Links(
        latency=_valid_seconds("latency", latency),
        upload=_sequence_as_array(upload),
        download=_sequence_as_array(download),
        server=server,
        servers=servers,
    )


def _check_seconds_or_rate(name: str, value: Any, *, above: bool = False) -> None:
    """Raises `ValueError` unless the value is numbers of at least 0, or above it."""
    if value is None or isinstance(value, (str, bytes)):
        raise ValueError(f"{name} must be a number, or one for each worker; got {value!r}.")
    _validate.number(name, value, above=above)


def _shares_of(seconds: Any, share: float | np.ndarray) -> Any:
    """The seconds times the share of each worker, float[W], or times the one of all, in the type of the seconds."""
    if np.ndim(share) == 0:
        return seconds * share
    dtype = jnp.result_type(seconds, float)
    shares = jnp.asarray(share, dtype)
    return jnp.where(shares == 0, 0, jnp.asarray(seconds, dtype) * shares)  # also where a message never arrived


def _check_one_link(name: str, value: Any) -> None:
    """Raises `ValueError` for several values of the one link that all share."""
    if value is not None and np.shape(value) != ():
        raise ValueError(f"{name} must be one number, since all workers share the server's link; got {value!r}.")


def _check_service(network: Network) -> None:
    """Raises `ValueError` unless the time of service is one, and there is no shared link besides."""
    if network.service is None:
        return
    if np.shape(network.service) != ():
        raise ValueError(f"service must be one number, since all workers share the server; got {network.service!r}.")
    if network.server is not None:
        raise ValueError(
            f"a server must have a link that is shared or a time of service; got server={network.server!r} and "
            f"service={network.service!r}. Leave one out."
        )


def _valid_seconds(name: str, value: Any) -> Any:
    """The seconds, sequences as arrays; a `ValueError` if one is negative or NaN."""
    _check_seconds_or_rate(name, value)
    return _sequence_as_array(value)


def _sequence_as_array(value: Any) -> Any:
    """A tuple or list as an array, a whole number as a float, anything else as it is."""
    if isinstance(value, (int, np.integer)):
        return float(value)
    return jnp.asarray(value, jnp.result_type(float)) if isinstance(value, (tuple, list)) else value
