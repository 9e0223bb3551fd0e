"""One small task of every kind, for the tests that hold for all of them."""

from gcjax import tasks

# name -> (factory of a task from keyword arguments, training examples)
TASKS = {
    "digits": (tasks.digits, 1438),
    "linear_regression": (lambda *args, **kw: tasks.linear_regression(*args, num_examples=90, **kw), 90),
    "logistic_regression": (lambda *args, **kw: tasks.logistic_regression(*args, num_examples=90, **kw), 90),
}
