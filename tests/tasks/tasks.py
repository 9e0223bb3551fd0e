"""One small task of every kind, for the tests that hold for all of them."""

import atexit
import functools
import tempfile
from pathlib import Path

from gcjax import tasks
from tests.tasks.files import write_cifar10, write_mnist


@functools.cache
def folder():
    """A folder with tiny files of all data sets, removed at the end."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    write_cifar10(Path(made.name))
    write_mnist(Path(made.name))
    (Path(made.name) / "text.txt").write_text("".join(f"{i} and {i + 1} make {2 * i + 1}\n" for i in range(41)))
    return Path(made.name)


def images(factory, num_chunks, **arguments):
    tiny = {"model": "mlp", "hidden": (8,), "batch_size": 32}
    return factory(num_chunks, folder=folder(), checksums={}, **(tiny | arguments))


def text(num_chunks, **arguments):
    return tasks.text(num_chunks, path=folder() / "text.txt", context=8, width=8, depth=1, **arguments)


# name -> (factory of a task from keyword arguments, training examples)
TASKS = {
    "cifar10": (functools.partial(images, tasks.cifar10, augment=False), 40),
    "digits": (tasks.digits, 1438),
    "fashion_mnist": (functools.partial(images, tasks.fashion_mnist), 40),
    "linear_regression": (lambda *args, **kw: tasks.linear_regression(*args, num_examples=90, **kw), 90),
    "logistic_regression": (lambda *args, **kw: tasks.logistic_regression(*args, num_examples=90, **kw), 90),
    "mnist": (functools.partial(images, tasks.mnist), 40),
    "text": (text, 80),
}
