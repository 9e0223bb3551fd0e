"""On which interfaces of its machine process 0 listens."""

import contextlib
import errno
import socket

from gcjax.processes.rendezvous import Rendezvous, is_loopback

_MAX_WAITING_CONNECTIONS = 1024
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def interface(rendezvous: Rendezvous, bind: str | None) -> str | None:
    """The address, or the name of one, on which process 0 listens; None for all of its machine.

    It is that of the coordinator. All interfaces are taken where that is none of this machine's, since addresses are
    translated on the way, or where a machine knows itself only by loopback, as some do.

    Args:
      rendezvous: where the group meets.
      bind: the interface that the user chose.
    """
    if bind is not None or rendezvous.is_loopback:
        return bind or rendezvous.host
    with contextlib.suppress(OSError):
        if all(_is_of_this_machine(family, address) for family, address in _addresses(rendezvous.host, port=0)):
            return rendezvous.host
    return None


def listeners(host: str | None, port: int) -> list[socket.socket]:
    """The sockets that listen on all addresses that a name has on this machine, or on all of the machine if None.

    An address that the machine does not have is left out, unless that is all of them.

    Raises:
      OSError: if that cannot be, or another program listens there.
    """
    if host is None:
        return [_listener_everywhere(port)]
    # Whether errors so far were only that the machine does not have an address.
    sockets, last_error, lacks_address_only = [], None, True
    for family, address in _addresses(host, port):
        try:
            sockets.append(socket.create_server(address, family=family, backlog=_MAX_WAITING_CONNECTIONS))
        except OSError as error:
            last_error = error
            # A name may stand for IPv6 as well where a machine has none.
            lacks_address_only = error.errno in _NO_SUCH_ADDRESS
            if not lacks_address_only:
                break
    if last_error is not None and (not sockets or not lacks_address_only):
        for listener in sockets:
            listener.close()
        raise last_error
    return sockets


def _listener_everywhere(port: int) -> socket.socket:
    """A socket that listens on all addresses of this machine; without those of IPv6 where it has none."""
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_MAX_WAITING_CONNECTIONS
        )
    except (OSError, ValueError):
        return socket.create_server(("", port), backlog=_MAX_WAITING_CONNECTIONS)


def _addresses(host: str, port: int) -> list[tuple[int, tuple]]:
    """The (family, address) pairs that a name stands for, as `socket` takes them, each once."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in infos))


def _is_of_this_machine(family: int, address: tuple) -> bool:
    """Whether an address is one of this machine, as a socket can be bound to it, and not one of loopback.

    Others may reach the machine there.
    """
    if is_loopback(address[0]):
        return False
    with socket.socket(family) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True
