"""How a process and process 0 prove to each other that they know the group's secret, before anything else is said.

    process 0 -> other   {"nonce": A}
    other -> process 0   {"process": I, "of": N, "nonce": B, "proof": HMAC(secret, "member", A, B, I, N)}
    process 0 -> other   {"proof": HMAC(secret, "hub", A, B, I, N)}

The nonces are new for each connection, so what was overheard proves nothing on another one; the two roles differ, so a
proof cannot be sent back (HMAC-SHA256, RFC 2104). What follows on the connection is neither signed nor encrypted.
Without a secret the key is empty: that keeps out what speaks another language, and nobody else.
"""

import asyncio
import hmac
import json
import secrets
from typing import Any, NamedTuple

from gcjax.processes import wire

MAX_BYTES = 512
"""Of a message, as long as its sender has proved nothing."""

PATIENCE = 10.0
"""Seconds for a handshake; whoever takes longer is a stranger."""


class Hello(NamedTuple):
    """What a process says that it is: `process` of `of`."""

    process: int
    of: int


async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> Hello | None:
    """Process 0's side: who has connected; None if it is a stranger."""
    own_nonce = secrets.token_hex(16)
    wire.send(writer, nonce=own_nonce)
    try:
        message = await asyncio.wait_for(wire.receive(reader, MAX_BYTES), PATIENCE) or {}
    except TimeoutError:
        return None
    hello, nonce = _hello(message), message.get("nonce")
    if hello is None or not _proves(message, secret, "member", own_nonce, nonce, hello):
        return None
    wire.send(writer, proof=_proof(secret, "hub", own_nonce, nonce, hello))
    return hello


async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, hello: Hello) -> str | None:
    """The other side: what is wrong with what answers at the address of process 0; None if it is process 0."""
    own_nonce = secrets.token_hex(16)
    challenge = await wire.receive(reader, MAX_BYTES) or {}
    nonce = challenge.get("nonce")
    if not isinstance(nonce, str):
        return "what answers there is not process 0 of a run that is being started"
    wire.send(writer, **hello._asdict(), nonce=own_nonce, proof=_proof(secret, "member", nonce, own_nonce, hello))
    answer = await wire.receive(reader, MAX_BYTES)
    if answer is None:
        return "process 0 takes this process for a stranger; do all have the same secret?"
    if not _proves(answer, secret, "hub", nonce, own_nonce, hello):
        return "what answers there does not know the secret of the group"
    return None


def _hello(message: dict[str, Any]) -> Hello | None:
    process, of = message.get("process"), message.get("of")
    if type(process) is int and type(of) is int and 0 < process < of:  # true is no number
        return Hello(process, of)
    return None


def _proof(secret: bytes, role: str, *what: Any) -> str:
    return hmac.new(secret, json.dumps([role, *what]).encode(), "sha256").hexdigest()


def _proves(message: dict[str, Any], secret: bytes, role: str, *what: Any) -> bool:
    proof = str(message.get("proof")).encode(errors="replace")
    return hmac.compare_digest(proof, _proof(secret, role, *what).encode())
