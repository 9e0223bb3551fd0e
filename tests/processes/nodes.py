"""The ends of a group's watch, without processes and without JAX, all on one event loop."""

import asyncio
from functools import partial

from gcjax.processes.hub import Hub
from gcjax.processes.member import Member
from gcjax.processes.rendezvous import Rendezvous


class Node:
    """One end of the watch, and what would have ended its process."""

    def __init__(self, port, number, rank, timeout=2.0, lost_after=60.0, secret=b"", host="localhost"):
        self.stopped = None
        kind = Member if rank else partial(Hub, host=host)
        self.end = kind(Rendezvous(f"localhost:{port}", number, rank), secret, timeout, lost_after, self._stop)

    def _stop(self, text):
        self.stopped = self.stopped or text
        if isinstance(self.end, Member):  # as the end of a process would
            self.end._writer.close()


def play(scene, seconds=30):
    """Runs a scene; nothing may be raised where nobody waits for it."""
    unexpected = []

    async def limited():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unexpected.append(context))
        result = await asyncio.wait_for(scene(), seconds)
        loop.set_exception_handler(lambda _, context: None)  # what is still under way is cancelled
        return result

    result = asyncio.run(limited())
    assert unexpected == [], unexpected
    return result


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


async def refused(*nodes):
    """What each of some nodes that cannot meet says."""
    errors = await asyncio.gather(*(node.end.meet() for node in nodes), return_exceptions=True)
    assert all(isinstance(error, ValueError) for error in errors), errors
    return [str(error) for error in errors]


async def first_of(port, number, **options):
    """Process 0 of a group, and its meeting, which has begun."""
    hub = Node(port, number, 0, **options)
    meeting = asyncio.create_task(hub.end.meet())
    await asyncio.sleep(0.1)
    return hub, meeting
