"""Tasks: what is learned, from which data."""

from gcjax.registry import Entry
from gcjax.tasks.base import Batch, Task
from gcjax.tasks.batches import Sampling, sampling
from gcjax.tasks.chunks import Chunks, Data, all_examples, first_examples, split
from gcjax.tasks.cifar import cifar10
from gcjax.tasks.digits import digits
from gcjax.tasks.from_functions import task_of
from gcjax.tasks.linear import linear_regression
from gcjax.tasks.logistic import logistic_regression
from gcjax.tasks.mnist import fashion_mnist, mnist
from gcjax.tasks.synthetic import Optimum
from gcjax.tasks.text import text

TABLE: dict[str, Entry] = {
    "cifar10": Entry(cifar10, "Krizhevsky 2009"),
    "digits": Entry(digits, "Alpaydin and Kaynak 1998"),
    "fashion_mnist": Entry(fashion_mnist, "Xiao, Rasul, Vollgraf 2017"),
    "linear_regression": Entry(linear_regression),
    "logistic_regression": Entry(logistic_regression),
    "mnist": Entry(mnist, "LeCun et al. 1998"),
    "text": Entry(text, "Vaswani et al. 2017"),
}

__all__ = [
    "TABLE",
    "Batch",
    "Chunks",
    "Data",
    "Optimum",
    "Sampling",
    "Task",
    "all_examples",
    "cifar10",
    "digits",
    "fashion_mnist",
    "first_examples",
    "linear_regression",
    "logistic_regression",
    "mnist",
    "sampling",
    "split",
    "task_of",
    "text",
]
