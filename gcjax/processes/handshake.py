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
    """Process 0's side: who has connected; None if it is a stranger, which does not prove that it knows the secret.

    The nonce of process 0 is the first of the two that are signed.
    """
    own_nonce = secrets.token_hex(16)
    wire.send(writer, nonce=own_nonce)
    try:
        message = await asyncio.wait_for(wire.receive(reader, MAX_BYTES), PATIENCE) or {}
    except TimeoutError:
        return None
    hello, their_nonce = _valid_hello(message), message.get("nonce")
    if hello is None or not _has_valid_proof(message, secret, "member", own_nonce, their_nonce, hello):
        return None
    wire.send(writer, proof=_proof(secret, "hub", own_nonce, their_nonce, hello))
    return hello


async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, hello: Hello) -> str | None:
    """The other side: what is wrong with what answers at the address of process 0; None if it is process 0.

    The nonce of process 0 is the first of the two that are signed.
    """
    own_nonce = secrets.token_hex(16)
    challenge = await wire.receive(reader, MAX_BYTES) or {}
    their_nonce = challenge.get("nonce")
    if not isinstance(their_nonce, str):
        return "what answers there is not process 0 of a run that is being started"
    wire.send(writer, **hello._asdict(), nonce=own_nonce, proof=_proof(secret, "member", their_nonce, own_nonce, hello))
    answer = await wire.receive(reader, MAX_BYTES)
    if answer is None:
        return "process 0 takes this process for a stranger; do all have the same secret?"
    if not _has_valid_proof(answer, secret, "hub", their_nonce, own_nonce, hello):
        return "what answers there does not know the secret of the group"
    return None


def _valid_hello(message: dict[str, Any]) -> Hello | None:
    """Who the sender of a message says that it is; None unless that is one of the processes 1, ..., N - 1 of N."""
    process, num_processes = message.get("process"), message.get("of")
    # `type`, as JSON's true is an int too
    if type(process) is int and type(num_processes) is int and 0 < process < num_processes:
        return Hello(process, num_processes)
    return None


def _proof(secret: bytes, role: str, *signed: Any) -> str:
    """The HMAC by the secret of the sender's role ("hub" or "member") and what else is signed, in hexadecimal."""
    return hmac.new(secret, json.dumps([role, *signed]).encode(), "sha256").hexdigest()


def _has_valid_proof(message: dict[str, Any], secret: bytes, role: str, *signed: Any) -> bool:
    """Whether the proof in a message is that of a sender in this role who knows the secret."""
    proof = str(message.get("proof")).encode(errors="replace")
    return hmac.compare_digest(proof, _proof(secret, role, *signed).encode())
