"""What keeps strangers out: bad certificates, tokens and addresses are said at once; nothing is left unencrypted."""

import contextlib
import shutil
import subprocess

import pytest

from gcjax import protocols
from gcjax.parameter_server import Disconnected, Limits, Refused, Security, Server, flight, work, workers
from tests.parameter_server.runs import setup

KEY, CERTIFICATE = b"-----BEGIN PRIVATE KEY-----\nAAAA", b"-----BEGIN CERTIFICATE-----\nAAAA"


@pytest.mark.parametrize(
    ("security", "match"),
    [
        (Security("secret", private_key=KEY), "got a private_key and no certificate"),
        (Security("secret", CERTIFICATE), "got a certificate and no private_key"),
        (Security(b"secret"), "the token must be text; got bytes"),
        (Security("secret", CERTIFICATE.decode(), KEY), "the certificate must be PEM, .*; got str"),
        (Security("secret", b"nonsense", KEY), "the certificate must be PEM, .*; got other bytes"),
        ("secret", "security must be a Security, .*; got 'secret'"),
    ],
)
def test_a_server_refuses_security_that_is_none(security, match):
    with pytest.raises(ValueError, match=match):
        Server(setup(protocols.asp()), Limits(1), security=security)


def test_a_server_says_that_a_certificate_is_broken():
    with pytest.raises(ValueError, match="a free port, and the private key that of the certificate; got '127.0.0.1:0'"):
        Server(setup(protocols.asp()), Limits(1), security=Security("secret", CERTIFICATE, KEY))


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "[::1]", "127.0.0.1:", "a:b", "a:99999", 7000, None])
def test_an_address_has_a_host_and_a_port(address):
    for use in (
        lambda: Server(setup(protocols.asp()), Limits(1), address=address),
        lambda: work(setup(protocols.asp()), address, worker=0),
        lambda: workers(setup, address, range(2)),
    ):
        with pytest.raises(ValueError, match="address must be HOST:PORT, for example .*; got "):
            use()


@pytest.mark.parametrize("patience", [float("nan"), -1.0, "long"])
def test_patience_is_a_time(patience):
    with pytest.raises(ValueError, match="patience must be"):
        work(setup(protocols.asp()), "127.0.0.1:1", worker=0, patience=patience)


def self_signed(folder, name):
    """(certificate, private key) for 127.0.0.1, as PEM."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate.read_bytes(), key.read_bytes()


def read_to_end(connection):
    """A server that ends the exchange at once, while the other side opens it, looks like one that is gone."""
    with contextlib.suppress(Disconnected):
        while True:
            connection.receive()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_another_certificate_is_refused_at_once(tmp_path):
    certificate, key = self_signed(tmp_path, "one")
    other_certificate, other_key = self_signed(tmp_path, "other")
    with pytest.raises(ValueError, match="the private key that of the certificate"):
        flight.listen(
            "127.0.0.1:0", lambda connection: None, max_bytes=10, security=Security("", certificate, other_key)
        )
    listener = flight.listen("127.0.0.1:0", read_to_end, max_bytes=10, security=Security("secret", certificate, key))
    flight.connect(listener.address, max_bytes=10, security=Security("secret", certificate)).close()
    with pytest.raises(Refused, match="both must use TLS, with the certificate of the server at 127.0.0.1:"):
        flight.connect(listener.address, max_bytes=10, security=Security("secret", other_certificate))
    with pytest.raises(Disconnected):
        flight.connect(listener.address, max_bytes=10, security=Security("secret"))
    listener.close()
    plain = flight.listen("127.0.0.1:0", lambda connection: None, max_bytes=10)
    with pytest.raises(Refused, match="both must use TLS"):
        flight.connect(plain.address, max_bytes=10, security=Security("", certificate))
    plain.close()
