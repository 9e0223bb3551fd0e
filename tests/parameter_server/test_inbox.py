"""The inbox of a worker: messages stay in order, also where one is looked at or put back."""

import threading

from gcjax.parameter_server.inbox import Inbox
from gcjax.parameter_server.wire import Message

FIRST, SECOND = Message({"kind": "stop"}), Message({"kind": "begin"})


def test_looking_takes_nothing():
    inbox = Inbox()
    assert not inbox.has_next() and not inbox.has_next(0.001)
    inbox.put(FIRST)
    assert inbox.has_next() and inbox.has_next(10.0) and inbox.get() == FIRST


def test_what_is_put_back_comes_first():
    inbox = Inbox()
    inbox.put(FIRST)
    inbox.put(SECOND)
    inbox.put_back(inbox.get())
    assert [inbox.get(), inbox.get()] == [FIRST, SECOND]


def test_who_waits_is_told():
    inbox = Inbox()
    threading.Timer(0.01, inbox.put, [None]).start()
    assert inbox.has_next(None) and inbox.get() is None
