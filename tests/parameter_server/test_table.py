"""Every protocol of the table is served by a test, or refused with a reason that is tested."""

import pytest

from gcjax import protocols
from gcjax.protocols.simulation import Rule
from tests.parameter_server.runs import NUM_WORKERS
from tests.parameter_server.test_stopped_rounds import PROTOCOLS as STOPPED
from tests.parameter_server.test_windows import PROTOCOLS as ADAPTIVE
from tests.protocols.test_rules import PROTOCOLS, REFUSED

SERVED = {**PROTOCOLS, **STOPPED, **ADAPTIVE}
WITHOUT_SERVER = {"ad_psgd", "d_psgd", "hop", "prague", "sgp"}


def names(cases):
    """The protocols of test cases, which begin with a protocol's name."""
    return {case.split()[0] for case in cases}


def test_no_protocol_of_the_table_is_left_out():
    assert names(SERVED) | names(REFUSED) == set(protocols.TABLE)
    cannot = {
        "coded_reduce", "halos", "m_sgc", "pipelined_coded", "ringleader", "sr_sgc", "streaming_diloco",
        *WITHOUT_SERVER,
    }  # fmt: skip
    assert names(REFUSED) - names(SERVED) == cannot


@pytest.mark.parametrize("name", sorted(SERVED))
def test_what_is_served_has_a_rule(name):
    assert isinstance(SERVED[name].rule(NUM_WORKERS), Rule)
