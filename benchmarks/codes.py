"""Benchmarks of codes: plans of many workers, and encoding and decoding against the memory bandwidth.

Part of `benchmarks`; `python -m benchmarks large roofline` runs these two.
"""

import statistics
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import KEY, Row, alternate, peak_mebibytes, ratio
from gcjax import codes
from gcjax.codes import assignments
from gcjax.engine.messages import combined_rows, decoded_blocks

BYTES_OF_FLOAT = 4
BYTES_OF_MIB = 2**20


def large_plans() -> list[Row]:
    """`plan` for W = N = 10^3, 10^4, 10^5 with load 8 and L = 4, float32."""
    median_seconds, bytes_used = {}, {}
    for num_workers in (10**3, 10**4, 10**5):
        assignment = assignments.random_regular(num_workers, load=8, rng_key=KEY)
        code = codes.partial(assignment, num_blocks=4, rng_key=KEY)
        progress = jnp.asarray(np.random.default_rng(0).integers(0, 9, num_workers), jnp.int32)
        plan = jax.jit(code.plan).lower(progress).compile()
        memory = plan.memory_analysis()
        (seconds,) = alternate(partial(plan, progress))
        median_seconds[num_workers] = statistics.median(seconds)
        bytes_used[num_workers] = 0 if memory is None else memory.temp_size_in_bytes + memory.output_size_in_bytes
    rows = [
        Row(
            what=f"plan, W = N = {num_workers:,}, load 8, L = 4",
            value=f"{1000 * seconds_of_plan:.3g} ms",
            target="",
            met=True,
            note=f"{bytes_used[num_workers] / BYTES_OF_MIB:.3g} MiB",
        )
        for num_workers, seconds_of_plan in median_seconds.items()
    ]
    row_of_largest = rows.pop()._replace(target="<= 500 ms", met=median_seconds[10**5] <= 0.5)
    peak_gib = peak_mebibytes() / 2**10
    peak_row = Row(
        what="  peak memory of the process",
        value=f"{peak_gib:.2f} GiB",
        target="<= 2 GiB",
        met=peak_gib <= 2,
        note="all three sizes",
    )
    return [*rows, row_of_largest, peak_row]


def roofline() -> list[Row]:
    """Encoding and decoding a gradient of 10^7 float32 numbers, against the time that its bytes take to move.

    Four workers hold K chunk gradients each: these are read, the messages written and read, and the estimate added to
    a running sum, for eight sets of stragglers in one program, as a training loop does. The bandwidth is that of
    scaling an array in place as often, in one program. (A program that is called for each set by itself pays for fresh
    memory, too, as any other does.)
    """
    num_workers, gradient_size, repeats = 4, 10**7, 8
    scale_in_place = jax.jit(lambda x: jax.lax.fori_loop(0, repeats, lambda i, x: x * (1.0 + 1e-4 * i), x))
    scaled_array = jnp.ones(4 * gradient_size)
    rows = []
    for num_blocks, load in ((1, 2), (2, 3)):
        code = codes.partial(assignments.cyclic(num_workers, load=load), num_blocks=num_blocks, rng_key=KEY)
        rounds = jnp.arange(repeats)
        straggler_of_round = rounds % num_workers
        progress = jnp.full((repeats, num_workers), load).at[rounds, straggler_of_round].set(0)
        codings = jax.vmap(code.plan)(progress)
        gradients = jax.random.normal(KEY, (num_workers, load, num_blocks, gradient_size // num_blocks))
        coding_seconds, scaling_seconds = alternate(
            partial(_encode_and_decode, gradients, codings), partial(scale_in_place, scaled_array)
        )
        message_bytes = num_workers * BYTES_OF_FLOAT * gradient_size / num_blocks
        estimate_bytes = BYTES_OF_FLOAT * gradient_size
        bytes_moved = gradients.nbytes + 2 * message_bytes + 2 * estimate_bytes
        bytes_moved_by_scaling = 2 * scaled_array.nbytes
        share = bytes_moved / bytes_moved_by_scaling * ratio(coding_seconds, scaling_seconds)
        bandwidth = bytes_moved_by_scaling * repeats / statistics.median(scaling_seconds)
        milliseconds = 1000 * statistics.median(coding_seconds) / repeats
        note = f"{milliseconds:.2g} ms for {bytes_moved / 1e9:.2f} GB; {bandwidth / 1e9:.0f} GB/s"
        what = f"encode + decode of 10^7 numbers, L = {num_blocks}, of the roofline"
        rows.append(Row(what=what, value=f"{share:.2f}", target=">= 0.5", met=share >= 0.5, note=note))
    return rows


@jax.jit
def _encode_and_decode(gradients: jax.Array, codings: codes.Coding) -> jax.Array:
    """float[L, block]: the sum of the estimates of all codings, of gradients float[W, K, L, block]."""

    def add_estimate(total: jax.Array, coding: codes.Coding) -> tuple[jax.Array, None]:
        messages = jax.lax.optimization_barrier(jax.vmap(_message)(coding.encode, gradients))
        return total + decoded_blocks(coding.decode, messages), None

    total, _ = jax.lax.scan(add_estimate, jnp.zeros(gradients.shape[2:]), codings)
    return total


def _message(coefficients: jax.Array, held_gradients: jax.Array) -> jax.Array:
    """What a worker sends: its gradients float[K, L, block], combined by coefficients float[M, K, L]."""
    combined_blocks = [combined_rows(coefficients[:, k], held_gradients[k]) for k in range(held_gradients.shape[0])]
    return sum(combined_blocks[1:], combined_blocks[0])


def plan_masks() -> list[Row]:
    """`plan` for 200 workers, load 8, L = 3, over 8000 masks, against numpy's pinv looped per chunk."""
    num_workers, load, num_blocks, num_masks = 200, 8, 3, 8000
    assignment = assignments.order_chunks(assignments.random_regular(num_workers, load=load, rng_key=KEY))
    code = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
    progress = np.random.default_rng(0).integers(0, load + 1, (num_masks, num_workers)).astype(np.int32)
    plan = jax.jit(jax.vmap(code.plan))
    holders = codes.holders(assignment)
    row_of_worker = np.asarray(code.plan(jnp.full(num_workers, load)).decode)[:, 0]

    def looped_plan_of_one_mask() -> tuple[np.ndarray, float]:
        """The same plan of one mask: for each chunk the pseudo-inverse of the rows of its finished holders."""
        encode, squared_distance = np.zeros((num_workers, load, num_blocks)), 0.0
        finished = progress[0][holders.workers] > holders.slots
        for workers, slots, is_finished in zip(holders.workers, holders.slots, finished, strict=True):
            system = (row_of_worker[workers] * is_finished[:, None]).T
            solution = np.linalg.pinv(system)
            encode[workers, slots] = solution
            squared_distance += ((system @ solution - np.eye(num_blocks)) ** 2).sum()
        return encode, np.sqrt(squared_distance)

    device_progress = jnp.asarray(progress)
    plan_seconds, seconds_of_one = alternate(lambda: plan(device_progress), looped_plan_of_one_mask, repeats=7)
    speedup = ratio(plan_seconds, [num_masks * seconds for seconds in seconds_of_one])
    looped_seconds = num_masks * statistics.median(seconds_of_one)
    note = f"{statistics.median(plan_seconds):.3f} s for 8000 masks of 200 chunks; pinv {looped_seconds:.0f} s"
    return [
        Row(
            what="plan over numpy's pinv looped per chunk",
            value=f"{speedup:,.0f}",
            target=">= 500",
            met=speedup >= 500,
            note=note,
            peer=f"numpy {np.__version__}",
        )
    ]
