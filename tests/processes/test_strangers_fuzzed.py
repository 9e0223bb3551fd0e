"""Random and mutated messages to process 0 while its group meets, and to a process that looks for process 0."""

import asyncio
import json
import random

import pytest

from gcjax.processes import handshake, wire
from tests.processes.commands import free_port
from tests.processes.nodes import Node, first_of, play, until
from tests.processes.test_strangers import SECRET, claim, say

FIELDS = ("process", "of", "nonce", "proof")


def value(rng, depth=3):
    """Any value of JSON, and some that only Python takes for it."""
    kind = rng.randrange(9 if depth else 7)
    match kind:
        case 0:
            return rng.choice([None, True, False])
        case 1:
            return rng.choice([0, 1, 2, 3, -1, 10**30, 2**63])
        case 2:
            return rng.choice([1.0, -0.0, 1e308, float("inf"), float("nan")])
        case 3 | 4:
            return "".join(rng.choice("ab0\x00\n\ud800\u20ac\U0001f600") for _ in range(rng.randrange(40)))
        case 5:
            return rng.randbytes(32).hex()
        case 6:
            return rng.randrange(-5, 5)
        case 7:
            return [value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return {rng.choice([*FIELDS, "go", "refused", "x"]): value(rng, depth - 1) for _ in range(rng.randrange(6))}


def mutated(rng, data):
    """Data with a few bytes changed, inserted, removed or repeated, or cut."""
    for _ in range(rng.randrange(1, 4)):
        start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        few = rng.randbytes(rng.randrange(1, 5))
        data = rng.choice(
            [
                data[:start] + few + data[start + len(few) :],
                data[:start] + few + data[start:],
                data[:start] + data[min(stop, start + 5) :],
                data[:stop] + data[start:],
                data[:start],
                data.replace(rng.choice(b'0123456789abcdef"{}:,').to_bytes(), few[:1]),
            ]
        )
    return data


def proved(data, true):
    """Whether the first line still says what a true process says."""
    try:
        said = json.loads(data.partition(b"\n")[0])
        return b"\n" in data and all(said[name] == json.loads(true)[name] for name in FIELDS)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def message(rng, nonce, overheard):
    """What a stranger says; it may know everything but the secret, or damage what one says who knows it."""
    number = rng.choice([1, 2, 3])
    true = claim(nonce, of=4, process=number)
    match rng.randrange(10):
        case 0:
            return rng.randbytes(rng.randrange(600))
        case 1:
            return rng.choice([b"[", b'{"process":', b"1", b"x", b"\x00", b"\n"]) * rng.randrange(70_000) + b"\n"
        case 2:
            return json.dumps(value(rng)).encode() + b"\n"
        case 3:
            return json.dumps({name: value(rng) for name in FIELDS}).encode() + b"\n"
        case 4:
            return claim(nonce, secret=rng.choice([b"", rng.randbytes(16)]), of=4, process=number)
        case 5:
            return mutated(rng, rng.choice(overheard))
        case 6:
            return rng.choice(overheard)
    while proved(data := mutated(rng, true), true):
        pass
    return data


def attack(seed, number):
    rng = random.Random(seed)

    async def scene():
        port, overheard = free_port(), [claim(rng.randbytes(16).hex(), of=4, process=i) for i in (1, 2, 3)]
        hub, meeting = await first_of(port, 4, timeout=1000.0, secret=SECRET)
        others = [Node(port, 4, rank, timeout=1000.0, secret=SECRET) for rank in (1, 2, 3)]
        one = asyncio.create_task(others[0].end.meet())
        await until(lambda: 1 in hub.end._peers)
        peer = hub.end._peers[1]
        for done in range(0, number, 20):
            answers = await asyncio.gather(
                *(say(port, lambda nonce: message(rng, nonce, overheard)) for _ in range(20))
            )
            assert answers == [b""] * 20, (seed, done)
            assert hub.end._peers == {1: peer} and not meeting.done() and not one.done(), (seed, done)
        await until(lambda: not hub.end._door._unproven_connections)
        assert hub.end.strangers_text().startswith(f"{number} connections were closed")
        await asyncio.gather(meeting, one, *(other.end.meet() for other in others[1:]))
        assert hub.end.strangers_text().startswith(f"{number} connections were closed")
        await asyncio.gather(hub.end.finish(), *(other.end.finish() for other in others))
        assert [node.stopped for node in (hub, *others)] == [None] * 4

    play(scene, 600)


def test_no_message_of_300_takes_a_place():
    attack(0, 300)


@pytest.mark.slow
def test_no_message_of_10000_takes_a_place():
    attack(1, 10_000)


class Nowhere:
    """A writer whose words are lost."""

    def write(self, data):
        self.said = data

    def is_closing(self):
        return False


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_answer_makes_a_stranger_process_0(number):
    rng = random.Random(number)

    async def scene():
        for _ in range(number):
            reader, writer = asyncio.StreamReader(limit=wire.MAX_BYTES), Nowhere()
            nonce = rng.randbytes(16).hex()
            challenge = json.dumps({"nonce": nonce}).encode() + b"\n"
            reader.feed_data(challenge if rng.random() < 0.8 else message(rng, nonce, [challenge]))
            entering = asyncio.create_task(handshake.enter(reader, writer, SECRET, handshake.Hello(1, 4)))
            await asyncio.sleep(0)
            reader.feed_data(message(rng, nonce, [getattr(writer, "said", challenge)]))
            reader.feed_eof()
            assert isinstance(await entering, str)

    play(scene, 600)
