"""What must hold of the schedule of every protocol, driven by the one table of `table`."""

import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import analysis, protocols
from gcjax.testing import check_protocol
from tests.parameters import one_in, some
from tests.protocols import table
from tests.protocols.table import CASES, W, protocol, schedule, tied_durations

KNOW_DURATIONS = ("worker_busy eager overlap",)
SOME = ("coded", "stsyn", "worker_busy overlap")
OTHERS = [name for name in CASES if name not in SOME]


def test_every_protocol_is_in_the_table():
    assert {name.split()[0] for name in CASES} == set(protocols.TABLE)


@pytest.mark.slow(
    "adaptive_coded",
    "anytime_minibatch",
    "async_local_sgd",
    "backup_workers",
    "coded_reduce",
    "decoupled_diloco of all",
    "diloco dynamic",
    "eager_sgd",
    "elastic_averaging",
    "grouped coded",
    "grouped servers",
    "halos dynamic",
    "k_async",
    "k_batch_sync",
    "progressive_groups servers",
    "psp",
    "psp lenient",
    "rennala",
    "ringleader",
    "ringmaster cuts off",
    "staleness_aware 2",
    "worker_busy eager",
)
@pytest.mark.parametrize("name", some(OTHERS[::2], [*OTHERS[1::2], *SOME]))
def test_the_contract(name):
    """With the program that other tests use as well."""
    made = protocol(name).replace(schedule=table.compiled(name))
    before = table.TRACES[name, table.shape_of(name)]
    num_units = table.shape_of(name)[0]
    check_protocol(made, num_workers=W, num_units=num_units, quick=True, knows_durations=name in KNOW_DURATIONS)
    assert table.TRACES[name, table.shape_of(name)] <= before + 3  # durations in 64 bits, and the types of two widths


@pytest.mark.slow("stsyn", "worker_busy overlap")
@pytest.mark.parametrize("name", some(SOME, OTHERS))
def test_the_whole_contract_with_vmap_and_the_specification(name):
    made = protocol(name).replace(schedule=table.function(name))
    if CASES[name].controls is not None:  # the schedule has those, and the rule the first ones of a search
        made = made.replace(rule=None)
    num_units = table.shape_of(name)[0]
    check_protocol(made, num_workers=W, num_units=num_units, knows_durations=name in KNOW_DURATIONS)


@pytest.mark.slow(
    "decoupled_diloco fixed",
    "eager_sgd majority",
    "grouped change",
    "grouped coded servers",
    "halos servers",
    "k_sync",
    "progressive_groups",
    "streaming_diloco of steps",
    "stsyn",
)
@pytest.mark.parametrize("name", one_in(4, CASES))
def test_a_worker_that_never_returns(name, x64):
    """Those who wait for it come to a halt, and are said to; the others run until the units run out."""
    durations = tied_durations(1, table.shape_of(name))
    durations[3 * (protocol(name).round_units if protocol(name).code else 1) :, 0] = np.inf
    s = schedule(name, durations)
    assert analysis.is_stalled(s) == CASES[name].stalls
    end = s.time[np.isfinite(s.time)].max(initial=0)
    uses = (s.worker == 0) & (s.work > 0) & np.isinf(durations[(s.unit + s.work - 1).clip(0, len(durations) - 1), 0])
    assert not uses.any()
    assert 0 < end <= durations[np.isfinite(durations)].sum()
    others = tied_durations(1, table.shape_of(name))
    assert not analysis.is_stalled(schedule(name, others))


@pytest.mark.slow("adsp", "elastic_averaging", "worker_busy overlap")
@pytest.mark.parametrize(
    "name", ["adsp", "anytime_minibatch", "elastic_averaging", "k_batch_sync", "worker_busy overlap"]
)
def test_less_units_than_a_round_takes(name, x64):
    s = schedule(name, np.ones((1, W)))
    assert np.isfinite(s.time).sum() <= W and not analysis.is_stalled(s)


@pytest.mark.parametrize(
    "name",
    ["adacomm", "coded", "diloco", "grouped change", "grouped elastic", "local_sgd", "streaming_diloco", "stsyn"],
)
def test_too_few_units_for_any_round(name):
    with pytest.raises(ValueError, match=r"takes [23] units.*got durations of 1 units"):
        protocol(name)(jnp.ones((1, W)))
