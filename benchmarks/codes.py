"""Benchmarks of codes: plans of many workers, and encoding and decoding against the memory bandwidth.

Part of `benchmarks`; `python -m benchmarks large roofline` runs these two.
"""

import resource
import statistics
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import codes
from gcjax.codes import assignments
from gcjax.engine.messages import combined_rows, decoded_blocks


def large_plans() -> list[Row]:
    """`plan` for W = N = 10^3, 10^4, 10^5 with load 8 and L = 4, float32."""
    seconds, bytes_used = {}, {}
    for num_workers in (10**3, 10**4, 10**5):
        assignment = assignments.random_regular(num_workers, load=8, rng_key=KEY)
        code = codes.partial(assignment, num_blocks=4, rng_key=KEY)
        progress = jnp.asarray(np.random.default_rng(0).integers(0, 9, num_workers), jnp.int32)
        plan = jax.jit(code.plan).lower(progress).compile()
        memory = plan.memory_analysis()
        seconds[num_workers] = statistics.median(alternate(partial(plan, progress))[0])
        bytes_used[num_workers] = 0 if memory is None else memory.temp_size_in_bytes + memory.output_size_in_bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = [
        Row(
            what=f"plan, W = N = {n:,}, load 8, L = 4",
            value=f"{1000 * s:.3g} ms",
            target="",
            met=True,
            note=f"{bytes_used[n] / 2**20:.3g} MiB",
        )
        for n, s in seconds.items()
    ]
    largest = seconds[10**5]
    return [
        *rows[:-1],
        rows[-1]._replace(target="<= 500 ms", met=largest <= 0.5),
        Row(
            what="  peak memory of the process",
            value=f"{peak:.2f} GiB",
            target="<= 2 GiB",
            met=peak <= 2,
            note="all three sizes",
        ),
    ]


def roofline() -> list[Row]:
    """Encoding and decoding a gradient of 10^7 float32 numbers, against the time that its bytes take to move.

    Four workers hold K chunk gradients each: these are read, the messages written and read, and the estimate added to
    a running sum, for eight sets of stragglers in one program, as a training loop does. The bandwidth is that of
    scaling an array in place as often, in one program. (A program that is called for each set by itself pays for fresh
    memory, too, as any other does.)
    """
    num_workers, size, repeats = 4, 10**7, 8
    scale = jax.jit(lambda x: jax.lax.fori_loop(0, repeats, lambda i, x: x * (1.0 + 1e-4 * i), x))
    array = jnp.ones(4 * size)
    rows = []
    for num_blocks, load in ((1, 2), (2, 3)):
        code = codes.partial(assignments.cyclic(num_workers, load=load), num_blocks=num_blocks, rng_key=KEY)
        rounds = jnp.arange(repeats)
        codings = jax.vmap(code.plan)(jnp.full((repeats, num_workers), load).at[rounds, rounds % num_workers].set(0))
        gradients = jax.random.normal(KEY, (num_workers, load, num_blocks, size // num_blocks))

        def message(coefficients: jax.Array, held: jax.Array) -> jax.Array:
            parts = [combined_rows(coefficients[:, k], held[k]) for k in range(held.shape[0])]
            return sum(parts[1:], parts[0])

        @jax.jit
        def both(gradients: jax.Array, codings: codes.Coding) -> jax.Array:
            def one(total: jax.Array, coding: codes.Coding) -> tuple[jax.Array, None]:
                sent = jax.lax.optimization_barrier(jax.vmap(message)(coding.encode, gradients))
                return total + decoded_blocks(coding.decode, sent), None

            return jax.lax.scan(one, jnp.zeros(gradients.shape[2:]), codings)[0]

        ours, copy = alternate(partial(both, gradients, codings), partial(scale, array))
        moved = gradients.nbytes + 2 * num_workers * 4 * size / num_blocks + 2 * 4 * size
        share = statistics.median(moved / 2 / array.nbytes * c / o for o, c in zip(ours, copy, strict=True))
        bandwidth = 2 * array.nbytes * repeats / statistics.median(copy)
        note = f"{1000 * statistics.median(ours) / repeats:.0f} ms for {moved / 1e9:.2f} GB; {bandwidth / 1e9:.0f} GB/s"
        what = f"encode + decode of 10^7 numbers, L = {num_blocks}, of the roofline"
        rows.append(Row(what=what, value=f"{share:.2f}", target=">= 0.5", met=share >= 0.5, note=note))
    return rows


def plan_masks() -> list[Row]:
    """`plan` for 200 workers, load 8, L = 3, over 8000 masks, against numpy's pinv looped per chunk."""
    assignment = assignments.order_chunks(assignments.random_regular(200, load=8, rng_key=KEY))
    code = codes.partial(assignment, num_blocks=3, rng_key=KEY)
    progress = np.random.default_rng(0).integers(0, 9, (8000, 200)).astype(np.int32)
    plan = jax.jit(jax.vmap(code.plan))
    inverse = codes.holders(assignment)
    rows = np.asarray(code.plan(jnp.full(200, 8)).decode)[:, 0]

    def looped() -> tuple[np.ndarray, float]:
        """The same plan of one mask: for each chunk the pseudo-inverse of the rows of its finished holders."""
        encode, distance = np.zeros((200, 8, 3)), 0.0
        finished = progress[0][inverse.workers] > inverse.slots
        for workers, slots, done in zip(inverse.workers, inverse.slots, finished, strict=True):
            system = (rows[workers] * done[:, None]).T
            solution = np.linalg.pinv(system)
            encode[workers, slots] = solution
            distance += ((system @ solution - np.eye(3)) ** 2).sum()
        return encode, np.sqrt(distance)

    device_progress = jnp.asarray(progress)
    ours, one_mask = alternate(lambda: plan(device_progress), looped, repeats=7)
    value = ratio(ours, [8000 * t for t in one_mask])
    note = (
        f"{statistics.median(ours):.3f} s for 8000 masks of 200 chunks; pinv {8000 * statistics.median(one_mask):.0f} s"
    )
    return [
        Row(
            what="plan over numpy's pinv looped per chunk",
            value=f"{value:,.0f}",
            target=">= 500",
            met=value >= 500,
            note=note,
            peer=f"numpy {np.__version__}",
        )
    ]
