"""Baselines of Ringleader ASGD, and clients whose data differ (Maranjyan, Richtárik, ICLR 2026, arXiv 2509.22860)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gcjax
from gcjax import _validate, tasks
from gcjax.protocols import Protocol, Schedule
from gcjax.protocols.base import LocalWork, own_params
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View, all_have_pushed, all_under_way
from gcjax.stragglers import Network
from gcjax.tasks import Task
from gcjax.tasks.chunks import Data, all_examples
from gcjax.tasks.classification import NUM_CLASSES


@gcjax.register("protocol", paper="Tyurin, Richtárik 2023")
def malenia() -> Protocol:
    """Malenia SGD: a commit once everybody has a gradient of its version, with the mean of the workers' own means.

    All compute on the newest version until the slowest has sent its first gradient; then the server steps with
    `1/W sum_w 1/b[w] sum_j g[w, j]`, b[w] the gradients of worker w, and all begin anew: what is under way is dropped.
    As in the code released with Ringleader ASGD, in which one gradient of each worker is enough.
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds that last until everybody has sent something: at most T, for `durations [T, W]`."""
        rule = Rule(
            commits=lambda view, worker: all_have_pushed(view),
            cuts_off=all_under_way,
            num_contributions=durations.shape[1],
            one_contribution_per_worker=True,
        )
        record = event_schedule(rule, durations, network, num_commits=durations.shape[0])
        return record._replace(weight=_mean_of_means(record))

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        local=LocalWork(optimizer=optax.sgd(1.0), server_optimizer=None, gradients_at_version=True),
    )


class _Table(NamedTuple):
    """What the server of `ia2sgd` keeps in mind: bool[W], who has a gradient in the table."""

    is_filled: jax.Array


@gcjax.register("protocol", paper="Maranjyan, Richtárik 2026")
def ia2sgd() -> Protocol:
    """IA²SGD: a table with the newest gradient of each worker, and a step with their mean whenever one arrives.

    Of Wang, Sun, Wai and Zhang (2024, arXiv 2405.16966), who also call it DuDe-ASGD; here as a baseline of Ringleader.
    The first step is when everybody is in the table; until then all compute on the initial parameters. Nobody waits.
    The released code keeps the newest gradient of those that a worker sends before the first step, and this their mean;
    there the first step is one arrival later.
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which each gradient is a commit, once the table is full, from `durations float[T, W]`."""
        record = event_schedule(_table_rule(durations.shape[1]), durations, network, num_commits=durations.size)
        return record._replace(weight=_mean_of_means(record))

    return Protocol(
        schedule,
        one_version=False,
        local=LocalWork(
            optimizer=optax.sgd(1.0),
            server_optimizer=None,
            pull=own_params,
            gradients_at_version=True,
            gradient_table=True,
        ),
    )


def _table_rule(num_workers: int) -> Rule:
    """The rule of a table with an entry for each of W workers: no commit before it is full, then one a message."""

    def filled_by(view: View, worker: jax.Array) -> jax.Array:
        """bool[W]: who has a gradient in the table after the worker's message."""
        return view.memory.is_filled.at[worker].set(True)

    return Rule(
        commits=lambda view, worker: filled_by(view, worker).all(),
        memory=lambda num_workers, dtype: _Table(jnp.zeros(num_workers, bool)),
        remember=lambda view, worker: _Table(filled_by(view, worker)),
        num_contributions=num_workers,
        one_contribution_per_worker=True,
    )


def _mean_of_means(record: Schedule) -> jax.Array:
    """float[E, C]: the factor of each gradient of a contribution of b gradients, 1 / (W b); 0 where there is none.

    Then the commit is the mean over W workers of the mean gradient of each. E commits of at most C contributions.
    """
    num_workers = record.read.shape[1]  # [units, W]
    # Where there is no contribution (worker -1) b is 0, and must not divide.
    factor = 1 / (num_workers * record.work.clip(1)).astype(record.time.dtype)
    return jnp.where(record.worker >= 0, factor, 0)


@gcjax.register("task", paper="Maranjyan, Richtárik 2026")
def digits_of_clients(
    num_chunks: int, *, concentration: float = 0.1, hidden: tuple[int, ...] = (128,), batch_size: int = 4, seed: int = 0
) -> Task:
    """Handwritten digits, of which each client has its own mixture of classes, drawn from a Dirichlet distribution.

    Each client in turn draws how it mixes the classes, and takes as many images as the others, each of a class drawn
    from its mixture among those of which images are left. The paper: MNIST and Fashion-MNIST, a layer of 128, batches
    of 4, a concentration of 0.1. Metrics: those of `gcjax.tasks.digits`, and `gradient`, the squared norm of the
    gradient of the loss on all training images.

    Args:
      num_chunks: N, the clients; each draws batches from its own images.
      concentration: of the Dirichlet distribution: the lower, the more a client's data differ.
      hidden: the widths of the hidden layers.
      batch_size: images of a gradient.
      seed: of the mixtures, and of the split into training and test images.

    Raises:
      ValueError: if a number is out of its range.
    """
    _validate.single_number("concentration", concentration, above=True, finite=True)
    task = tasks.digits(num_chunks, hidden=hidden, batch_size=batch_size, local_data=True, seed=seed)
    train = task.data.train
    labels, sizes = np.asarray(train.targets), np.asarray(train.sizes)  # int[images], padded; int[N]
    order = _order_by_client(labels[: sizes.sum()], sizes, concentration, np.random.default_rng(seed))
    order = np.concatenate([order, np.arange(sizes.sum(), len(labels))])  # the padding stays behind
    data = task.data._replace(train=train._replace(inputs=train.inputs[order], targets=train.targets[order]))
    return task._replace(data=data, metrics=_with_gradient(task.metrics, task.loss))


def _order_by_client(
    labels: np.ndarray, sizes: np.ndarray, concentration: float, rng: np.random.Generator
) -> np.ndarray:
    """int[n]: positions in `labels int[n]`, the classes of n images: those of client 0 first, `sizes int[N]` of each.

    Each client draws its mixture of classes from a Dirichlet distribution, and then image by image.
    """
    images_left = [rng.permutation(np.flatnonzero(labels == label)).tolist() for label in range(NUM_CLASSES)]
    order = []
    for size in sizes:
        mixture = rng.dirichlet(np.full(NUM_CLASSES, concentration))
        for _ in range(size):
            is_left = np.array([bool(images) for images in images_left])
            shares = np.where(is_left, mixture + 1e-12, 0)  # if none of its classes is left, any other one
            order.append(images_left[rng.choice(NUM_CLASSES, p=shares / shares.sum())].pop())
    return np.array(order)


@gcjax.comparable
def _with_gradient(metrics: Callable[..., dict[str, Any]], loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    """The metrics, and `gradient`, the squared norm of the gradient of the loss on all training images."""

    def all_metrics(params: Any, data: Data) -> dict[str, jax.Array]:
        """Metric -> value."""
        gradient = jax.grad(loss)(params, all_examples(data.train), jax.random.key(0))
        return {**metrics(params, data), "gradient": optax.tree.norm(gradient, squared=True)}

    return all_metrics
