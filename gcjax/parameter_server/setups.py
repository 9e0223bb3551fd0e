"""What server and workers must agree on, and how they see that they do."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import gcjax
from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.engine.identity import digest_of
from gcjax.engine.program import server_optimizer
from gcjax.engine.program_digest import digest_of_program
from gcjax.engine.validation import check_chunks
from gcjax.parameter_server import rule_state, wire
from gcjax.protocols.base import LocalWork, Protocol, code_of_messages
from gcjax.protocols.simulation.rule_checks import check_rule
from gcjax.protocols.simulation.rules import Rule
from gcjax.tasks.base import Task


class Setup(NamedTuple):
    """A training run on the real clock; every process makes its own, equal one.

    Attributes:
      task: what is trained.
      protocol: who waits for whom.
      optimizer: of the server; where workers take steps of their own, also theirs unless the protocol says otherwise.
      num_workers: W, the most that take part at once.
      rng_key: decides the initial parameters and all batches, as in `gcjax.engine.run`.
      identity: text of what else must be the same, for example that of a config.
    """

    task: Task
    protocol: Protocol
    optimizer: optax.GradientTransformation
    num_workers: int
    rng_key: jax.Array
    identity: str = ""

    @property
    def init_key(self) -> jax.Array:
        """The key of the initial parameters."""
        return jax.random.split(self.rng_key)[0]

    @property
    def batch_key(self) -> jax.Array:
        """The key of the batches."""
        return jax.random.split(self.rng_key)[1]

    def initial_params(self) -> Any:
        """The parameters before the first commit."""
        return jax.jit(self.task.init)(self.init_key)

    def rule(self) -> Rule:
        """The rule that the server asks.

        Raises:
          ValueError: if the protocol cannot be served, with the reason, or a function of its rule returns what it must
            not.
        """
        if self.protocol.rule is None:
            raise ValueError(
                "the protocol must have a rule to be served; this one has none. Say Protocol(..., rule=lambda "
                "num_workers: gcjax.protocols.simulation.Rule(...))."
            )
        rule = self.protocol.rule(self.num_workers)
        check_rule(rule, self.num_workers, 1, jnp.result_type(float))
        return rule


def check_setup(setup: Setup) -> None:
    """Raises a `ValueError` if a part of the setup is of the wrong kind."""
    if not isinstance(setup, Setup):
        raise ValueError(f"setup must be a gcjax.parameter_server.Setup; got {setup!r}.")
    _validate.instance("task", setup.task, Task, "gcjax.tasks.digits(num_chunks=8)")
    _validate.instance("protocol", setup.protocol, Protocol, "gcjax.protocols.ssp(staleness=3)")
    _validate.optimizer("optimizer", setup.optimizer)
    _validate.integer("num_workers", setup.num_workers, minimum=1)
    check_chunks(setup.task, code_of_messages(setup.protocol), setup.num_workers)
    _validate.rng_key(setup.rng_key)


VERSION_NAMES = ("format of messages", "gcjax", "jax")
"""The names in a fingerprint that say by what it is computed, and not what."""


def fingerprint(setup: Setup) -> dict[str, str]:
    """By name, what must be the same at server and worker, as text that a person can compare.

    Digests stand for arrays, and for what loss, optimizers, local work, code and rule compute: these depend on the
    version of JAX.
    """
    params = jax.eval_shape(setup.task.init, setup.init_key)
    return {
        "format of messages": str(wire.FORMAT),
        "gcjax": gcjax.__version__,
        "jax": jax.__version__,
        "number of workers": str(setup.num_workers),
        "random key": digest_of(setup.rng_key),
        "data": digest_of(setup.task.data),
        "identity": setup.identity,
        **_digests_of_programs(setup, params),
        **{f"model{name}": text for name, text in wire.layout_of(params).described().items()},
    }


def _digests_of_programs(setup: Setup, params: Any) -> dict[str, str]:
    """By name, digests of what is computed on parameters of these shapes.

    They are of the loss on a batch, of a step of the optimizers, and of the rule's decision; of what local work does
    on pull and push; and of the plan of a code.
    """
    task, code, local = setup.task, setup.protocol.code, setup.protocol.local
    unit_or_chunk_batch = task.unit_batch if code is None else task.chunk_batch
    optimizers = server_optimizer(setup.protocol, setup.optimizer), (local and local.optimizer) or setup.optimizer
    number = jnp.int32(0)

    def loss(params: Any, data: Any, rng_key: jax.Array, worker: jax.Array, unit: jax.Array) -> Any:
        """The loss on the batch of a unit, or of a chunk."""
        return task.loss(params, unit_or_chunk_batch(data, rng_key, worker, unit), rng_key)

    def steps(params: Any) -> Any:
        """The first step of the optimizer of the server, and of that of the workers."""
        return [o.update(params, o.init(params), params) for o in optimizers]

    programs = {
        "loss": jax.make_jaxpr(loss)(params, task.data, setup.batch_key, number, number),
        "optimizer": jax.make_jaxpr(steps)(params),
        "rule": rule_state.traced_decision(setup.rule(), setup.num_workers),
    }
    digests = {name: digest_of_program(program) for name, program in programs.items()}
    if local is not None:
        digests["local work"] = _digest_of_local_work(local, params)
    if (message_code := code_of_messages(setup.protocol)) is not None:
        digests["code"] = _digest_of_code(message_code)
    return digests


def _digest_of_local_work(local: LocalWork, params: Any) -> str:
    """A digest of what pull and push do with parameters of these shapes, and of the numbers of local work."""

    def pull_and_push(params: Any, base: Any, version_params: Any, weight: jax.Array) -> Any:
        """What a worker has after reading a version; what it pushes, and what it has then."""
        return local.pull(params, version_params), local.push(params, base, version_params, weight)

    program = jax.make_jaxpr(pull_and_push)(params, params, params, jnp.zeros(()))
    numbers = {name: value for name, value in local._asdict().items() if isinstance(value, int)}  # and flags
    return f"{digest_of_program(program)} {digest_of(numbers)}"


def _digest_of_code(code: GradientCode) -> str:
    """A digest of who holds which chunks in which order, and of how a code plans its messages."""
    plan = jax.make_jaxpr(code.plan)(jnp.zeros(code.assignment.num_workers, jnp.int32))
    return f"{digest_of(code.assignment.chunks)} {digest_of_program(plan)}"


def differences(
    server: dict[str, str], other: dict[str, str], *, here: str = "at the server", where: str = "here"
) -> str:
    """A line for each name whose text differs between the server's fingerprint and another one; "" if none does.

    `here` is where the server's is, in words, and `where` the other one.
    """
    names = [name for name in {**server, **other} if server.get(name) != other.get(name)]
    return "\n".join(f"{name}: {server.get(name, 'none')} {here}, {other.get(name, 'none')} {where}" for name in names)
