"""A small comparison made by hand, for tests of what is done with results."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import analysis, codes, protocols, stragglers
from gcjax.engine import Trajectory

W, T, S = 4, 12, 2
SCHEMES = {
    "BSP": protocols.bsp(),
    "ASP": protocols.asp(),
    "FRC": protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
}
NETWORK = stragglers.constant_network(latency=0.05, upload=0.2)
SCHEDULES = {name: jax.jit(jax.vmap(lambda d, p=protocol: p(d, NETWORK))) for name, protocol in SCHEMES.items()}


def durations(failed=()):
    """float[S, T, W]; some workers fail for good at their third unit."""
    model = stragglers.shifted_exponential(shift=1.0, mean=0.5)
    sampled = [np.array(stragglers.sample_durations(model, jax.random.key(s), T, W)) for s in range(S)]
    found = np.stack(sampled)
    found[:, 2:, list(failed)] = np.inf
    return found


def trajectory(schedule, final=0.99):
    """Accuracy rises evenly to `final` over the commits of each seed."""
    made = np.isfinite(schedule.time).sum(axis=1)
    commit = np.arange(schedule.time.shape[1] + 1)
    time = np.concatenate([np.zeros((S, 1)), schedule.time], axis=1)
    share = np.minimum(1, commit / np.maximum(made, 1)[:, None])
    metrics = {"train_loss": 2.0 * (1 - share) + 0.01, "accuracy": final * share}
    return Trajectory(np.where(np.isfinite(time), commit, -1), time, metrics)


def results(failed=(), final=0.99, value=0.9):
    """Results of all schemes, with the metrics of `trajectory`."""
    units = durations(failed)
    metrics, timeline, commits, facts = [], [], [], {}
    for name, protocol in SCHEMES.items():
        schedule = jax.tree.map(np.asarray, SCHEDULES[name](jnp.asarray(units)))
        seeds = [jax.tree.map(lambda x, s=s: x[s], schedule) for s in range(S)]
        path = trajectory(schedule, final)
        labels = {"seed": np.arange(S)}
        metrics.append(
            analysis.metric_columns(name, path, schedule, units, labels=labels, code=protocol.code, num_params=100)
        )
        timeline.append(analysis.timeline_columns(name, seeds[0], units[0], 8.0))
        commits.append(analysis.commit_columns(name, seeds[0], 8.0))
        facts[name] = {"stalled": [analysis.is_stalled(s) for s in seeds]}
    target = analysis.target("accuracy", value, ["accuracy", "train_loss"])
    run = {"target": target._asdict(), "num_workers": W, "timeline_seconds": 8.0, "schemes": facts}
    return analysis.Results(
        analysis.concatenate_tables(metrics),
        analysis.concatenate_tables(timeline),
        run,
        analysis.concatenate_tables(commits),
    )


def renamed(found, old, new):
    """Results in which a scheme has another name."""

    def of(columns):
        return {**columns, "scheme": np.where(columns["scheme"] == old, new, columns["scheme"])}

    schemes = {new if name == old else name: facts for name, facts in found.facts["schemes"].items()}
    return analysis.Results(of(found.metrics), of(found.timeline), {**found.facts, "schemes": schemes},
                            of(found.commits))  # fmt: skip
