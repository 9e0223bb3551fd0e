"""Specifications: counts against formulas, what holds, and broken variants, each caught by the right part."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, specifications
from gcjax.specifications import (
    Action,
    base,
    check,
    clocks,
    estimate,
    explore,
    reachability,
    ssp,
    worker_busy,
)
from gcjax.specifications.base import layout
from gcjax.specifications.moves import Stepper
from tests.parameters import some

FAILING = {"worker_busy_eager"}
SMALL = {  # what the smallest instance that shows what there is takes besides two workers
    "coded": {"num_workers": 3},
    "coded_reduce": {"num_workers": 6, "num_layers": 2},
    "grouped": {"num_workers": 3},
    "halos": {"num_workers": 3},
    "k_async": {"num_workers": 3},
    "k_sync": {"num_workers": 3},
    "m_sgc": {"num_workers": 3},
    "progressive_groups": {"num_workers": 3},
    "psp": {"num_workers": 3},
    "sr_sgc": {"num_workers": 3},
}
# Of those that are made of the same functions, the default run has the largest.
ALIKE = {
    "adaptive_coded", "adsp", "anytime_minibatch", "asp", "backup_workers", "coded", "coded_reduce", "diloco",
    "elastic_averaging", "grouped", "k_batch_async", "k_batch_sync", "k_sync", "local_sgd", "m_sgc", "staleness_aware",
    "stsyn", "worker_busy_eager",
}  # fmt: skip
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in specifications.TABLE]


WALKED = ["psp", "sr_sgc", "ssp", "worker_busy"]


def small(name, **parameters):
    return specifications.TABLE[name].factory(**{"num_workers": 2, **SMALL.get(name, {}), **parameters})


def failing(result):
    """The parts that fail, each named once."""
    return {part.part.split()[0] for part in result.findings if not part.holds}


@pytest.mark.slow("worker_busy_eager")
@pytest.mark.parametrize("name", ["bsp", "worker_busy_eager"])
def test_what_is_found_is_true_in_a_condition_if_it_holds(name):
    """An `assert` of it, or of one of its parts, says as much as that of `holds`."""
    result = check(small(name))
    assert bool(result) is result.holds is (name not in FAILING)
    assert {part.part.split()[0] for part in result.findings if not part} == failing(result)
    lines = str(result).splitlines()
    assert lines[0] == f"{result.specification.name}:" and len(lines) == 1 + len(result.findings)
    assert any(f"fails after {len(result.product.counterexample)} steps" in line for line in lines) is not bool(result)


@pytest.mark.slow(
    "adacomm",
    "async_local_sgd",
    "d_psgd",
    "decoupled_diloco",
    "delay_adaptive",
    "eager_sgd",
    "halos",
    "k_async",
    "progressive_groups",
    "ringmaster",
    "sr_sgc",
    "ssp_cached",
    "worker_busy",
)
@pytest.mark.parametrize("name", NAMES)
def test_the_specification_holds(name):
    result = check(small(name))
    assert failing(result) == (set() if name not in FAILING else {"worker", "all"})
    assert result.by_composition == result.product.holds
    assert result.product.states > 1
    if result.holds:  # what the others guarantee contains what they do
        assert all(part.states >= result.product.states for part in result.components)


def test_a_search_that_ended_at_a_failure_says_so():
    result = check(small("worker_busy_eager"))
    assert not result.product and not result.progress.is_complete and not result.composition.is_complete
    assert str(result).endswith("progress: holds up to where the property fails; not looked at behind that")
    assert all(finding.is_complete for finding in check(small("bsp")).findings)


def test_every_protocol_has_a_specification():
    assert set(protocols.TABLE) <= set(specifications.TABLE)


# The others would try out more than there is room for, or are made of the same functions.
TRIED = ["adacomm", "adaptive_coded", "coded", "grouped", "k_async", "sr_sgc", "stsyn", "worker_busy"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_actions_lead_to_all_that_a_role_guarantees(name):
    whole = specifications.TABLE[name].factory(2)
    tried = whole._replace(server=whole.server._replace(takes_only_actions=False))
    steppers = [Stepper(specification, layout(specification)) for specification in (whole, tried)]
    rows = reached(steppers[0], 8)[: steppers[1].states_at_once]

    def guaranteed(stepper):
        moves = stepper.moves_of_one(rows, -1)
        columns = np.concatenate([moves.state[:, None], moves.component[:, None], moves.after], axis=1)
        return {tuple(row) for row in columns[stepper.judge(rows[moves.state], moves).is_guaranteed].tolist()}

    given, all_of_them = (guaranteed(stepper) for stepper in steppers)
    assert given == all_of_them
    assert any(component >= whole.num_workers for _, component, *_ in given)


def reached(stepper, levels):
    """Some states, canonical, by breadth first."""
    rows = np.asarray(stepper.layout.flatten(stepper.specification.initial))[None]
    for _ in range(levels):
        moves = stepper.moves_of_all(rows)
        found = np.concatenate([rows, stepper.judge(rows[moves.state], moves).canonical_rows])
        rows = np.unique(found, axis=0)[: stepper.states_at_once]
    return rows


@pytest.mark.slow("sr_sgc")
@pytest.mark.parametrize("name", some(WALKED, [name for name in specifications.TABLE if name not in WALKED]))
def test_normalising_loses_nothing(name):
    """Random walks with absolute numbers have the same moves, guarantees and properties as the canonical states."""
    specification = small(name)
    stepper = Stepper(specification, layout(specification))
    random = np.random.default_rng(0)
    rows = np.repeat(np.asarray(stepper.layout.flatten(specification.initial))[None], 8, axis=0)
    normal = rows
    for _ in range(25):
        moves, same = stepper.moves_of_all(rows), stepper.moves_of_all(normal)
        assert all(np.array_equal(x, y) for x, y in zip(moves[:3], same[:3], strict=True))
        judgement = stepper.judge(rows[moves.state], moves)
        for x, y in zip(judgement, stepper.judge(normal[same.state], same), strict=True):
            np.testing.assert_array_equal(x, y)
        assert judgement.is_guaranteed.all()
        chosen = [random.choice(np.flatnonzero((moves.state == n) & judgement.is_explored)) for n in range(len(rows))]
        rows, normal = moves.after[chosen], judgement.canonical_rows[chosen]


@pytest.mark.parametrize("workers, staleness, number", [(4, 3, 369), (3, 2, 37), (1, 5, 1)])
def test_ssp_has_the_states_that_the_formula_says(workers, staleness, number):
    assert (staleness + 2) ** workers - (staleness + 1) ** workers == number
    assert explore(ssp(workers, staleness=staleness)).states == number


@pytest.mark.slow
@pytest.mark.parametrize("workers, staleness, number", [(8, 1, 6305), (6, 3, 11529)])
def test_large_instances_of_ssp(workers, staleness, number):
    result = check(ssp(workers, staleness=staleness))
    assert result.holds and result.product.states == number


def changed(numbers, place, value):
    return tuple(value if i == place else x for i, x in enumerate(numbers))


def test_exploring_agrees_with_plain_python():
    found, level, seen = explore(specifications.ssp_cached(2, staleness=1)), [((0, 0), (0, 0))], set()
    edges = 0
    while level:
        clock, read = level.pop()
        least = min(read)
        state = tuple(c - least for c in clock), tuple(r - least for r in read)
        if state in seen:
            continue
        seen.add(state)
        clock, read = state
        for w in range(2):
            if clock[w] - read[w] <= 1:
                level.append((changed(clock, w, clock[w] + 1), read))
                edges += 1
            if read[w] < min(clock):
                level.append((clock, changed(read, w, min(clock))))
                edges += 1
    assert (found.states, found.transitions) == (len(seen), edges)


def test_a_component_alone_may_reach_more():
    result = check(specifications.bsp(3, staleness=1))
    assert result.holds
    assert result.components[0].states > result.product.states == 7


def test_the_eager_variant_fails_after_four_steps():
    steps = explore(specifications.TABLE["worker_busy_eager"].factory(3, trigger=2)).failures["property"]
    assert [step.action for step in steps] == ["push", "pull", "push", "pull"]
    slow, fast = steps[0].component, steps[2].component
    assert [step.component for step in steps] == [slow, slow, fast, fast]
    assert slow == "worker 2" != fast
    read = np.asarray(steps[-1].after.read)
    assert (read[2], read[int(fast[-1])]) == (1, 2)
    for before, after in itertools.pairwise(steps):
        jax.tree.map(np.testing.assert_array_equal, before.after, after.before)


# Broken variants.


def with_move(specification, move, *, server=False):
    """Another program of the first action."""
    role = specification.server if server else specification.worker
    role = role._replace(actions=(Action("broken", move), *role.actions[1:]))
    return specification._replace(server=role) if server else specification._replace(worker=role)


def test_a_program_that_goes_too_far_breaks_its_guarantee():
    result = check(clocks.bounded_staleness("broken", 2, program_staleness=2, promised_staleness=1))
    assert failing(result) == {"worker", "all"}
    assert result.components[0].reason == "takes a step that it does not guarantee"
    steps = result.product.counterexample
    assert len(steps) == 3 and {step.component for step in steps} == {steps[0].component}
    assert steps[-1].before.clock.max() == 2


def test_a_server_that_commits_without_an_upload_breaks_its_guarantee():
    whole = worker_busy(2)

    def early(state, server):
        after, _ = whole.server.actions[0].move(state, server)
        return after, (state.pending_units > 0).any()

    result = check(with_move(whole, early, server=True))
    assert failing(result) == {"server", "all"}
    assert [step.action for step in result.product.counterexample] == ["push", "broken"]


def test_a_rely_that_asks_for_too_much_is_caught_by_composition():
    def nobody_moves(before, after, component):
        return (before.clock == after.clock).all()

    result = check(ssp(2, staleness=1)._replace(rely=nobody_moves))
    assert failing(result) == {"composition"}
    assert not result.by_composition
    assert len(result.composition.counterexample) == 1

    def somebody_moves(before, after, component):
        return (after.clock - before.clock).sum() == 1

    found = check(ssp(2, staleness=1)._replace(rely=somebody_moves)).composition
    assert not found.holds and "do something" in found.reason


def test_a_rely_that_asks_for_too_little_fails_alone():
    def left_alone(before, after, component):
        return after.clock[component] == before.clock[component]

    result = check(ssp(2, staleness=1)._replace(rely=left_alone))
    assert failing(result) == {"worker"}


def test_a_program_that_writes_what_belongs_to_others_breaks_its_guarantee():
    whole = ssp(2, staleness=1)

    def push(state, worker):
        after, enabled = whole.worker.actions[0].move(state, worker)
        return after._replace(clock=after.clock.at[1 - worker].set(after.clock.max())), enabled

    result = check(with_move(whole, push))
    assert failing(result) == {"worker", "all"}
    assert result.product.reason == "takes a step that it does not guarantee"


def test_a_guarantee_that_is_too_weak_fails_alone_and_not_together():
    def anything(before, after, worker):
        return after.clock[worker] == before.clock[worker] + 1

    whole = ssp(2, staleness=1)._replace(rely=None)
    result = check(whole._replace(worker=whole.worker._replace(rule=anything)))
    assert failing(result) == {"worker"}
    assert result.product.holds and not result.by_composition
    assert result.components[0].counterexample[-1].action == "environment"


def test_a_barrier_that_dead_locks_is_caught_by_progress_only():
    whole = ssp(2, staleness=0)

    def push(state, worker):
        after, enabled = whole.worker.actions[0].move(state, worker)
        return after, enabled & (worker == 0)

    result = check(with_move(whole, push))
    assert failing(result) == {"progress"}
    assert len(result.progress.counterexample) == 1


def test_k_sync_with_one_gradient_less_breaks_its_guarantee():
    whole = specifications.TABLE["k_sync"].factory(3, num_contributions=2)

    def early(state, server):
        after, _ = whole.server.actions[0].move(state, server)
        return after, state.pending_units.sum() == 1

    result = check(with_move(whole, early, server=True))
    assert {"server", "all"} <= failing(result)
    assert [step.action for step in result.product.counterexample] == ["read", "unit", "broken"]


def test_an_early_commit_of_a_code_breaks_its_guarantee_and_the_property():
    whole = specifications.TABLE["coded"].factory(3, num_stragglers=1)

    def early(state, server):
        after, _ = whole.server.actions[0].move(state, server)
        return after, state.pending_units.any()

    broken = with_move(whole, early, server=True)
    assert failing(check(broken)) == {"server", "all"}
    # Where the guarantee is as wrong as the program, the property still tells.
    rule = lambda before, after, server: (after.version == before.version + 1) & (after.pending_units == 0).all()  # noqa: E731
    result = check(broken._replace(server=broken.server._replace(rule=rule)))
    assert result.product.reason == "the property does not hold"
    assert len(result.product.counterexample) == 3


def test_a_code_that_full_progress_does_not_decode_stops_for_ever():
    never = specifications.Decodable(load=1, is_decodable=lambda progress: jnp.zeros((), bool))
    assert failing(check(specifications.TABLE["coded"].factory(2, decodable=never))) == {"progress"}


def test_a_group_that_does_not_wait_for_its_members_is_caught():
    whole = specifications.TABLE["grouped"].factory(2, groups=1)

    def push(state, server):
        after, _ = whole.server.actions[0].move(state, server)
        return after, (server == 2) & (state.num_unread_pushes[0] == 0) & state.pending_units.any()

    result = check(with_move(whole, push, server=True))
    assert failing(result) == {"server", "all"}
    assert [step.action for step in result.product.counterexample] == ["unit", "broken"]


def test_a_group_that_does_not_read_is_found_by_its_staleness():
    whole = specifications.TABLE["grouped"].factory(2, groups=2)
    push, read = whole.server.actions

    def keep(state, server):
        after, enabled = read.move(state, server)
        return after._replace(read=state.read), enabled

    broken = whole._replace(server=whole.server._replace(actions=(push, Action("keep", keep))))
    found = explore(broken).failures
    assert [step.action for step in found["property"]] == ["unit", "push", "keep", "unit", "push"]


@pytest.mark.parametrize("name", ["sr_sgc", pytest.param("m_sgc", marks=pytest.mark.slow)])
def test_a_server_that_waits_for_nobody_decodes_too_late(name):
    whole = specifications.TABLE[name].factory(3)

    def impatient(state, server):
        return whole.server.actions[0].move(state, server)[0], state.num_answers.any()

    found = explore(with_move(whole, impatient, server=True))
    assert set(found.failures) == {"guarantee", "property"}


def test_a_round_that_takes_old_reads_breaks_its_property():
    whole = specifications.TABLE["local_sgd"].factory(2, num_local_steps=1)
    actions = whole.worker.actions

    def unit(state, worker):
        return actions[1].move(state, worker)[0], (state.pending_units[worker] < 1) & (state.read[worker] >= 0)

    broken = whole._replace(worker=whole.worker._replace(actions=(actions[0], Action("unit", unit))))
    assert explore(broken).failures["property"][-1].action == "unit"


def test_bad_sizes_are_told():
    with pytest.raises(ValueError, match="num_workers must be a whole number at least 1; got 0"):
        ssp(0)
    whole = specifications.TABLE["m_sgc"].factory(3)
    with pytest.raises(ValueError, match="at most 262144 ways to write .* Use fewer workers"):
        check(whole._replace(server=whole.server._replace(takes_only_actions=False)))
    with pytest.raises(ValueError, match=r"below 2\^62; 16 entries .* Use about"):
        explore(ssp(16, staleness=20))
    narrow = ssp(2, staleness=3)._replace(sizes=clocks.Clocks(np.full(2, 3)))
    with pytest.raises(ValueError, match="must stay within clock 3 3; got clock"):
        explore(narrow)


def test_what_is_too_large_is_refused_before_it_is_explored(monkeypatch):
    monkeypatch.setattr(reachability._Search, "run", lambda search: pytest.fail("explored"))
    said = r"at most 1000000 states .* it has 2\.\de\+08 or more, for each worker has 5 by itself. At most 8 workers"
    with pytest.raises(ValueError, match=said):
        check(worker_busy(12))


@pytest.mark.parametrize("workers", some([2], [3]))
@pytest.mark.parametrize("name", ["worker_busy", "ssp", "k_async", "bsp", "worker_busy_eager", "asp"])
def test_there_are_at_least_the_states_that_are_estimated(name, workers):
    small = specifications.TABLE[name].factory(workers)
    stepper = Stepper(small, base.layout(small))
    whole = explore(small, stepper=stepper)
    assert "property" in whole.failures or estimate.min_states(stepper).states <= whole.states


@pytest.mark.slow
def test_states_are_numbered_the_same_however_little_is_kept_at_once(monkeypatch):
    whole = explore(worker_busy(3), 0)
    monkeypatch.setattr(reachability, "MAX_ENTRIES", 14 * 600)
    assert explore(worker_busy(3), 0)[:2] == whole[:2]
    monkeypatch.setattr(reachability, "MAX_ENTRIES", 14 * 500)
    with pytest.raises(ValueError, match="at most 500 states that can be reached, with 14 entries each; more"):
        explore(worker_busy(3), 0)


@pytest.mark.parametrize(
    ("factory", "numbers"),
    [
        (specifications.async_local_sgd, {"num_local_steps": 3}),
        (specifications.elastic_averaging, {"num_local_steps": 3}),
        (specifications.fedbuff, {"num_contributions": 3}),
        (specifications.halos, {"num_local_steps": 3}),
        (specifications.k_async, {"num_contributions": 2}),
        (specifications.k_batch_sync, {"num_contributions": 3}),
        (specifications.m_sgc, {"burst": 2, "window": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_whole_numbers_of_numpy_are_whole_numbers(factory, numbers):
    of_numpy = factory(3, **{name: np.int64(value) for name, value in numbers.items()})
    assert of_numpy.claim == factory(3, **numbers).claim


@pytest.mark.parametrize("component", [-1, 9])
def test_only_components_that_there_are_can_be_explored(component):
    with pytest.raises(ValueError, match=f"component must be a whole number between 0 and 1; got {component}"):
        explore(specifications.bsp(2), component)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: specifications.grouped(2, groups=[[0, 1], []]), "and none be empty"),
        (lambda: specifications.halos(2, groups=[[0, 1], []]), "and none be empty"),
        (lambda: specifications.local_sgd(2.5), "num_workers must be a whole number"),
        (lambda: specifications.local_sgd(-1), "num_workers must be a whole number"),
        (lambda: specifications.diloco(2.5), "num_workers must be a whole number"),
        (lambda: specifications.decoupled_diloco(2.5), "num_workers must be a whole number"),
        (lambda: specifications.ssp(2, staleness=2**31), "staleness must be a whole number between 0 and 1073741824"),
        (lambda: specifications.hop(5, max_gap=2**31), "max_gap must be a whole number between 1 and 1073741824"),
    ],
)
def test_arguments_of_specifications_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("make", [specifications.grouped, specifications.halos])
def test_counts_may_be_numbers_of_numpy(make):
    assert make(4, groups=np.int64(2)).name == make(4, groups=2).name


def test_who_takes_part_decides_what_an_effect_shows():
    """Of an action whose effect shows only if somebody takes part, the specification with members asks who does."""
    staleness_1 = protocols.ssp(staleness=1).specification(3)

    def members(alive):
        spec = staleness_1.members(alive)
        push = spec.worker.actions[0]._replace(matches_effect=lambda before, after, event: jnp.any(alive))
        return spec._replace(worker=spec.worker._replace(actions=(push,)))

    spec = specifications.with_members(staleness_1._replace(members=members))
    shows_effect = spec.worker.actions[0].matches_effect
    for alive in (0, 1):
        state = spec.initial._replace(alive=jnp.full(3, alive))
        assert bool(shows_effect(state, state, None)) == bool(alive)


def test_the_claim_of_groups_speaks_of_members_where_there_are_some():
    assert specifications.asp(4).claim.startswith("a push has 1 unit in it")
    assert specifications.grouped(4, groups=2).claim.startswith("a push has 1 unit of each member in it")
