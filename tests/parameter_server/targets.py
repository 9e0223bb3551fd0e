"""What processes of tests do; they import this module, and little with it."""

import os
import signal
import time

from gcjax import parameter_server


def one_number(number):
    return {"number": number, "pid": os.getpid()}


def killed_at_first():
    if not parameter_server.is_restarted():
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def nothing_to_find():
    raise ValueError("there is nothing to find")


def many_numbers(count):
    return list(range(count))


def endless():
    time.sleep(1000)
