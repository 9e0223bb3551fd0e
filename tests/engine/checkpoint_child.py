"""Programs that the tests of checkpoints run as processes of their own, to kill them or to have several."""

import os
import sys

import numpy as np

IDENTITY = "a child"


def grown(step):
    """A state whose content tells its step."""
    draw = np.random.default_rng(step)
    return {"count": np.int32(step), "noise": draw.normal(size=(64, 1000)).astype(np.float32)}


def grow(folder):
    """Saves for ever, and prints the steps that are on the disk for certain."""
    import jax

    from gcjax.engine.checkpoint import Checkpoints

    with Checkpoints(folder, keep=2) as checkpoints:
        restored = checkpoints.restore(jax.tree.map(jax.numpy.asarray, grown(0)), IDENTITY)
        step = restored.step if restored else 0
        while True:
            step += 1
            checkpoints.save(step, jax.tree.map(jax.numpy.asarray, grown(step)), IDENTITY)
            print(step - 1, flush=True)  # a save ends the one before


def share(folder, num_processes, process, port):
    """Restores what there is over all processes, saves two more steps, prints what was found."""
    num_processes, process = int(num_processes), int(process)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={4 // num_processes}"
    import jax

    if num_processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes, process, initialization_timeout=60)
    from jax.sharding import NamedSharding, PartitionSpec

    from gcjax.engine.checkpoint import Checkpoints

    assert "orbax" not in sys.modules, "imported before it is used"
    mesh = jax.make_mesh((4,), ("workers",))

    def spread(step):
        def put(x, *axes):
            return jax.make_array_from_callback(x.shape, NamedSharding(mesh, PartitionSpec(*axes)), lambda i: x[i])

        state = grown(step)
        return {"count": put(state["count"]), "noise": put(state["noise"], "workers"), "empty": put(np.zeros((0, 2)))}

    with Checkpoints(folder) as checkpoints:
        restored = checkpoints.restore(spread(0), IDENTITY)
        step = restored.step if restored else 0
        if restored:
            check_shards(restored.state, spread(step))
        for _ in range(2):
            step += 1
            checkpoints.save(step, spread(step), IDENTITY)
    print("restored", repr(restored.step) if restored else None, flush=True)


def check_shards(state, expected):
    """Every process holds the parts it should."""
    import jax

    for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert x.sharding == y.sharding
        for a, b in zip(x.addressable_shards, y.addressable_shards, strict=True):
            assert np.asarray(a.data).tobytes() == np.asarray(b.data).tobytes()


if __name__ == "__main__":
    {"grow": grow, "share": share}[sys.argv[1]](*sys.argv[2:])
