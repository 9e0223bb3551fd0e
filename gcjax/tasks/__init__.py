"""Tasks: what is learned, from which data."""

from gcjax.registry import Entry
from gcjax.tasks.base import Batch, Task
from gcjax.tasks.batches import Sampling, sampling
from gcjax.tasks.chunks import Chunks, Data, all_examples, split
from gcjax.tasks.classification import digits
from gcjax.tasks.linear import linear_regression
from gcjax.tasks.logistic import logistic_regression
from gcjax.tasks.synthetic import Optimum

TABLE: dict[str, Entry] = {
    "digits": Entry(digits, "Alpaydin and Kaynak 1998"),
    "linear_regression": Entry(linear_regression),
    "logistic_regression": Entry(logistic_regression),
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
    "digits",
    "linear_regression",
    "logistic_regression",
    "sampling",
    "split",
]
