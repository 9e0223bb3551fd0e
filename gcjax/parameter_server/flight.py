"""Messages over Arrow Flight (gRPC): one exchange of record batches for each worker, open as long as it takes part.

A thread reads for each connection. Short messages are written by who sends them, long ones by another thread, so that
a worker that does not read holds up nobody.
"""

import contextlib
import hashlib
import hmac
import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from gcjax.parameter_server import wire
from gcjax.parameter_server.security import NO_SECURITY, Security
from gcjax.parameter_server.transport import Connection, Disconnected, OnConnection, Refused
from gcjax.parameter_server.wire import Message

SCHEMA = pa.schema([("bytes", pa.uint8())])
COMMAND = f"gcjax-parameter-server-{wire.FORMAT}".encode()
PART_BYTES = 1 << 30
"""The bytes of a record batch at most: a message of more has several. gRPC takes less than 2 GiB."""
BUFFERED_BYTES = 1 << 16
"""What the other side's machine takes although nobody reads there: so many bytes are written without waiting."""
CLOSE_SECONDS = 2.0
"""For which a worker may go on once it was told that the run is done."""
KEEPALIVE_SECONDS = 360.0
"""After which a worker that has heard nothing asks for a sign of life, for which the server then has a minute.

The server's gRPC hangs up if it is asked oftener than every 5 minutes.
"""
_AUTHORIZATION = "authorization"


_WRONG_CERTIFICATE = "certificate verify failed", "is not in peer certificate", "wrong version number"
"""What gRPC says of a server with another certificate, or another name, or without TLS."""


def listen(address: str, on_connection: OnConnection, *, max_bytes: int, security: Security = NO_SECURITY) -> "Server":
    """Listens at an address until it is closed.

    Args:
      address: HOST:PORT; port 0 for any free one.
      on_connection: `(connection) -> None`, called in a thread of its own; the connection is closed when it returns.
      max_bytes: of the body of a message.
      security: the token and the certificate of the server.

    Raises:
      ValueError: if nobody can listen there, for example since the port is in use, or not with this certificate.
    """
    scheme = "grpc+tls" if security.certificate else "grpc"
    options: dict[str, Any] = {"middleware": {"token": _TokenCheck(security.token)}}
    if security.certificate:
        options["tls_certificates"] = [(security.certificate, security.private_key)]
    try:
        return Server(f"{scheme}://{address}", on_connection, max_bytes, options)
    except (OSError, pa.ArrowException) as error:
        needed = "address must be one to listen at, with a free port"
        if security.certificate:
            needed += ", and the private key that of the certificate"
        raise ValueError(
            f"{needed}; got {address!r}: {str(error).splitlines()[0]}. Does another server listen there?"
        ) from None


def connect(address: str, *, max_bytes: int, security: Security = NO_SECURITY, seconds: float = 5.0) -> Connection:
    """A connection to the server at `address`, HOST:PORT.

    Args:
      address: of the server.
      max_bytes: of the body of a message.
      security: the token, and the certificate by which the server is known.
      seconds: that the server may take to answer.

    Raises:
      Disconnected: if nobody answers there.
      Refused: if the token, the format or the certificate is another one.
    """
    scheme, options = ("grpc+tls", {"tls_root_certs": security.certificate}) if security.certificate else ("grpc", {})
    keepalive = [("grpc.keepalive_time_ms", int(1000 * KEEPALIVE_SECONDS))]
    client = flight.connect(f"{scheme}://{address}", generic_options=keepalive, **options)
    headers = [(_AUTHORIZATION.encode(), _bearer(security.token).encode())]
    try:
        # An exchange has no deadline of its own, so a short call sees first whether anybody answers.
        list(
            client.do_action(
                flight.Action("hello", COMMAND), flight.FlightCallOptions(timeout=seconds, headers=headers)
            )
        )
        descriptor = flight.FlightDescriptor.for_command(COMMAND)
        writer, reader = client.do_exchange(descriptor, flight.FlightCallOptions(headers=headers))
        writer.begin(SCHEMA)
    except (flight.FlightUnauthenticatedError, pa.ArrowInvalid) as error:
        client.close()
        raise Refused(str(error).split(". Detail")[0]) from None  # without what Flight says of itself
    except (OSError, pa.ArrowException) as error:
        client.close()
        reason = str(error).splitlines()[0]
        if any(sign in reason.lower().replace("_", " ") for sign in _WRONG_CERTIFICATE):
            raise Refused(f"both must use TLS, with the certificate of the server at {address}: {reason}") from None
        raise Disconnected(f"nobody answers at {address}: {reason.rstrip('.')}.") from None

    return _Exchange(reader, writer, max_bytes, client)


class Server(flight.FlightServerBase):
    """A `Listener`."""

    def __init__(self, location: str, on_connection: OnConnection, max_bytes: int, options: dict[str, Any]) -> None:
        """Listens from now on, at a URL with the scheme grpc or grpc+tls; `options` go to Flight's own server."""
        self._on_connection, self._max_bytes = on_connection, max_bytes
        self._host = location.split("://")[1].rpartition(":")[0]
        self._token_check: _TokenCheck = options["middleware"]["token"]
        self._num_malformed = 0
        super().__init__(location, **options)

    @property
    def address(self) -> str:
        """HOST:PORT that it listens at."""
        return f"{self._host}:{self.port}"

    @property
    def num_refused(self) -> int:
        """The calls that were refused."""
        return self._token_check.num_refused + self._num_malformed

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Answers who wants to know whether the server is there and speaks this format."""
        del context
        self._check(action.body.to_pybytes())
        return iter([])

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Calls `on_connection` with the exchange of a worker."""
        del context
        self._check(descriptor.command or b"")
        writer.begin(SCHEMA)
        connection = _Exchange(reader, writer, self._max_bytes)
        try:
            self._on_connection(connection)
        except ValueError as error:
            self._num_malformed += 1
            raise pa.ArrowInvalid(str(error)) from None
        finally:
            connection.close()
            connection.wait_until_written()  # Flight frees the exchange afterwards, which no thread may then use

    def close(self) -> None:
        """Ends the server and all its connections; one that does not hang up within `CLOSE_SECONDS` is left behind."""
        closing = threading.Thread(target=self.shutdown, daemon=True)  # it waits for whoever has not hung up
        closing.start()
        closing.join(timeout=CLOSE_SECONDS)
        if closing.is_alive():
            _skip_at_exit(self)

    def _check(self, command: bytes) -> None:
        """Raises an error unless the command is that of this format."""
        if command != COMMAND:
            self._num_malformed += 1
            raise pa.ArrowInvalid(
                f"both sides must speak the same format, {COMMAND.decode()}; got {command[:60]!r}. Install the same "
                "gcjax on both"
            )


def _skip_at_exit(server: Any) -> None:
    """Lets the interpreter end although somebody has not hung up: pyarrow's own finalizer would wait for that again."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        object_and_function = finalizer.peek()  # None once it has been called
        if object_and_function is not None and object_and_function[0] is server:
            finalizer.atexit = False


def _bearer(token: str) -> str:
    """The value of the header with a token: its digest, since a header takes few characters only."""
    return f"Bearer {hashlib.sha256(token.encode()).hexdigest()}"


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Refuses calls without the token, and counts them."""

    def __init__(self, token: str) -> None:
        """`token`: empty lets everybody in."""
        super().__init__()
        self._token, self.num_refused = token, 0

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        """Raises an error unless the headers of the call have the token; without a token everybody may call."""
        del info
        authorization = next(iter(headers.get(_AUTHORIZATION, [])), "")
        if self._token and not hmac.compare_digest(authorization.encode(), _bearer(self._token).encode()):
            self.num_refused += 1
            raise flight.FlightUnauthenticatedError("the token must be that of the server; this one is another")


class _Packet(NamedTuple):
    """A message as it is written: its header as JSON, and uint8[n], its body, or None."""

    header: bytes
    body: np.ndarray | None

    @property
    def num_bytes(self) -> int:
        """Of both."""
        return len(self.header) + (0 if self.body is None else self.body.size)


class _Exchange:
    """A `Connection`; what is sent is written at once if buffers have room for it, else by a thread that may wait."""

    def __init__(self, reader: Any, writer: Any, max_bytes: int, client: Any = None) -> None:
        """Of a Flight reader and writer, and the client that they are of; None at the server.

        A message has a body of `max_bytes` at most.
        """
        self._reader, self._writer, self._max_bytes, self._client = reader, writer, max_bytes, client
        self._outbox: queue.SimpleQueue[_Packet | None] = queue.SimpleQueue()
        self._is_over = False  # nothing more can be sent; what is in the outbox still may be
        self._num_waiting = 0  # in the outbox, or being written by its thread
        # Written at once since the last message of the other side: who sends also reads, in a thread of its own. It is
        # set to 0 without the lock; if that happens within an addition the number is too large, until the next message.
        self._unanswered_bytes = 0
        # For writing without the thread, for adding to both numbers, and for the end of both: gRPC ends the process if
        # two threads write to one exchange at once, or one writes while it is closed.
        self._lock = threading.Lock()
        self._sender = threading.Thread(target=self._write_all, daemon=True)
        self._sender.start()

    def send(self, message: Message) -> None:
        """Writes the message, or puts it into the outbox: writing to who has stopped reading could take for ever."""
        packet = _Packet(wire.header_bytes(message), message.body)
        with self._lock:
            if self._is_over:
                raise Disconnected("the other side is gone.")
            if self._num_waiting or self._unanswered_bytes + packet.num_bytes > BUFFERED_BYTES:
                self._num_waiting += 1
                self._outbox.put(packet)
                return
            self._unanswered_bytes += packet.num_bytes
            try:
                self._write(packet)
            except (OSError, pa.ArrowException, StopIteration):
                self._is_over = True
                raise Disconnected("the other side is gone.") from None

    def receive(self) -> Message:
        """Waits for the next message, whose body comes in one record batch or several.

        Raises:
          Disconnected: if the other side is gone.
          ValueError: if the message is not as its header says.
        """
        try:
            chunk = self._reader.read_chunk()
            self._unanswered_bytes = 0
            if chunk.app_metadata is None:
                raise ValueError("a message must have a header; this one has none.")
            header = wire.header_of(chunk.app_metadata.to_pybytes(), self._max_bytes)
            num_bytes = header.pop("bytes")
            if not num_bytes:
                return Message(header)
            parts = [_array(chunk.data)]
            while sum(part.size for part in parts) < num_bytes:
                parts.append(_array(self._reader.read_chunk().data))
        except (StopIteration, OSError, pa.ArrowException) as error:
            self._is_over = True
            raise Disconnected(
                f"the other side is gone: {str(error).splitlines()[0] if str(error) else 'closed'}"
            ) from None
        body = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if body.size != num_bytes:
            raise ValueError(f"a message must have the {num_bytes} bytes that it announces; it has {body.size}.")
        return Message(header, body)

    def close(self) -> None:
        """Ends it, after what was sent.

        A client gives the other side `CLOSE_SECONDS` to read what is in the outbox, and then leaves it behind. A server
        does not wait here, as the other side may be suspended: its thread of the exchange does.
        """
        with self._lock:
            self._is_over = True
        self._outbox.put(None)
        if self._client is None:
            return
        self._sender.join(timeout=CLOSE_SECONDS)
        for end in (self._reader.cancel, self._client.close):
            with contextlib.suppress(OSError, pa.ArrowException):
                end()

    def wait_until_written(self) -> None:
        """Waits until everything is written, once it is closed: until the other side reads or is gone."""
        self._sender.join()

    def _write_all(self) -> None:
        """Writes what is in the outbox, as it comes, until `None`, or until the other side is gone."""
        try:
            while (packet := self._outbox.get()) is not None:
                self._write(packet)
                with self._lock:
                    self._num_waiting -= 1
            if self._client is not None:  # without this the server learns of it only by `cancel`
                self._writer.done_writing()
            self._writer.close()
        except (OSError, pa.ArrowException, StopIteration):
            self._is_over = True

    def _write(self, packet: _Packet) -> None:
        """Writes a message: its body in record batches of `PART_BYTES`, and its header with the first of them."""
        header, body = packet
        if body is None or not body.size:
            self._writer.write_metadata(header)
            return
        for begin in range(0, body.size, PART_BYTES):
            batch = _batch(body[begin : begin + PART_BYTES])
            if begin == 0:
                self._writer.write_with_metadata(batch, header)
            else:
                self._writer.write_batch(batch)


def _batch(part: np.ndarray) -> pa.RecordBatch:
    """A record batch of uint8[n], without a copy."""
    return pa.record_batch([pa.Array.from_buffers(pa.uint8(), part.size, [None, pa.py_buffer(part)])], schema=SCHEMA)


def _array(batch: Any) -> np.ndarray:
    """uint8[n], the bytes of a record batch, without a copy; they are not to be written."""
    if batch is None or batch.num_columns != 1 or batch.schema.field(0).type != pa.uint8():
        raise ValueError("a message must have its bytes in one column of type uint8.")
    column = batch.column(0)
    if column.null_count:
        raise ValueError(f"a message must have all of its bytes; {column.null_count} of this one are missing.")
    # With `to_numpy` a fifth fewer messages go through a server; NumPy sees whether the buffer is as long as it says.
    return np.frombuffer(column.buffers()[1], np.uint8, count=len(column), offset=column.offset)
