"""Where a server listens, and what keeps strangers out."""

from typing import Any, NamedTuple

from gcjax.processes.rendezvous import host_of, is_loopback

_PEM_BEGIN = b"-----BEGIN "


class Security(NamedTuple):
    """What keeps strangers out.

    Attributes:
      token: that both sides know; empty for none, which is for loopback addresses, unless it is `open_to_all`.
      certificate: PEM, of the server; empty without TLS.
      private_key: PEM, of the server; empty on workers.
      open_to_all: whether a server needs no token although others can reach it.
    """

    token: str = ""
    certificate: bytes = b""
    private_key: bytes = b""
    open_to_all: bool = False


NO_SECURITY = Security()
"""Nobody is kept out: for loopback addresses."""


def check_server(address: Any, security: Security) -> None:
    """Checks where a server is to listen, and by what security.

    Raises:
      ValueError: if the address is not HOST:PORT; if the certificate and its key do not come together; or if other
        machines can reach the address, and there is no token, and none is to be there.
    """
    host = _host(address, min_port=0)
    _check_types(security)
    if bool(security.certificate) != bool(security.private_key):
        given, missing = ("certificate", "private_key") if security.certificate else ("private_key", "certificate")
        raise ValueError(
            f"a server with TLS needs a certificate and its private key; got a {given} and no {missing}. Give both, or "
            "neither for messages that are not encrypted."
        )
    if not security.token and not security.open_to_all and not is_loopback(host):
        raise ValueError(
            f"others can reach {address!r}, so server and workers need a token in common; got none. Give "
            "Security(token=...), or listen at 127.0.0.1, or say Security(open_to_all=True)."
        )


def check_worker(address: Any, security: Security) -> None:
    """Checks where a worker is to look for its server, and by what security; a `ValueError` as of `check_server`."""
    _host(address, min_port=1)
    _check_types(security)


def _host(address: Any, min_port: int) -> str:
    """The host of an address, without the brackets of IPv6; a `ValueError` unless it is HOST:PORT."""
    host = host_of(address, min_port=min_port)
    if host is None:
        raise ValueError(f"address must be HOST:PORT, for example 127.0.0.1:7000; got {address!r}.")
    return host


def _check_types(security: Any) -> None:
    """Raises a `ValueError` unless the token is text, and certificate and key are PEM as bytes."""
    if not isinstance(security, Security):
        raise ValueError(f"security must be a Security, for example Security(token='...'); got {security!r:.60}.")
    if not isinstance(security.token, str):
        raise ValueError(f"the token must be text; got {type(security.token).__name__}.")
    for name in ("certificate", "private_key"):
        value = getattr(security, name)
        if not isinstance(value, bytes) or (value and _PEM_BEGIN not in value):
            raise ValueError(
                f"the {name} must be PEM, as the bytes of a file that has {_PEM_BEGIN.decode()!r} in it; got "
                f"{type(value).__name__ if not isinstance(value, bytes) else 'other bytes'}. Read it with "
                "Path(FILE).read_bytes()."
            )
