"""Each config at a size that takes seconds: the bindings that make it so small."""

_COMPARISON = (
    "study.num_units = 60", "study.num_seeds = 1", "study.seconds = None", "study.target = 0.2",
    "compare.timeline_seconds = 5.0",
)  # fmt: skip
_GROUPS = (
    "study.num_units = 60", "study.num_seeds = 2", "study.num_evals = 2", "group_delays.num_rounds = 4",
    "group_delays.delays = (0, 100)", "group_delays.num_groups = (1, 2)",
)  # fmt: skip
_APPROXIMATE = ("approximate.deadlines = (3, 6)", "approximate.blocks = (1,)", "approximate.num_trials = 4")
_PUBLISHED = (
    "study.num_units = 40", "study.num_seeds = 2", "study.seconds = None", "study.num_evals = 4",
    "tuning.num_trials = 2",
)  # fmt: skip
_REGULAR = ("random_regular.num_workers = 20",)

BINDINGS = {
    "adaptive": (
        "adaptive_codes.codes = {'uncoded': @uncoded(), 'partial, L=2': @partial2/partial()}",
        "adaptive_codes.stragglers = {'bursty': (@bursty(),)}",
        "adaptive_codes.num_rounds = 10",
        "adaptive_codes.num_seeds = 2",
    ),
    "attacks": (
        *_COMPARISON,
        "compare.schemes = {'mean': @coded(), 'majority, a=1, 1 lies': @majority/coded()}",
        "study.wrong_senders = {'majority, a=1, 1 lies': @wrong_senders()}",
    ),
    "codes": (
        "compare_codes.codes = {'uncoded': @uncoded(), 'partial, L=2': @partial2/partial()}",
        "compare_codes.num_trials = 4",
        "compare_codes.max_masks = 4",
    ),
    "conditioning": (
        "conditioning.num_workers = (8,)",
        "conditioning.num_stragglers = (1,)",
        "conditioning.num_blocks = (1,)",
        "conditioning.max_masks = 4",
        "conditioning.degrees = (5,)",
        "conditioning.num_polynomials = 4",
    ),
    "grouped/delays": _GROUPS,
    "grouped/hybrid": _COMPARISON,
    "grouped/merges": (*_GROUPS, "group_delays.rules = {'elastic, 4 local rounds': @elastic/grouped}"),
    "grouped/two_stragglers": _GROUPS,
    "partial_stragglers/approximate": (
        *_APPROXIMATE,
        "approximate.assignments = {'G1': @g1/random_regular()}",
        "g1/random_regular.num_workers = 20",
        "approximate.num_failed = 2",
        "approximate.num_graphs = 2",
        "approximate.compare_published = False",
    ),
    "partial_stragglers/bimodal": (*_APPROXIMATE, *_REGULAR),
    "partial_stragglers/exact": (
        "exact.assignments = {'G1': @random_regular()}",
        *_REGULAR,
        "exact.blocks = (1,)",
        "exact.num_trials = 4",
        "exact.num_graphs = 2",
        "exact.num_orders = 2",
        "exact.order_draws = (1, 2)",
        "exact.compare_published = False",
    ),
    "partial_stragglers/heterogeneous": (*_APPROXIMATE, "balanced.num_workers = 30", "balanced.num_chunks = 30"),
    "partial_stragglers/markov": (*_APPROXIMATE, *_REGULAR),
    "partial_stragglers/more_chunks": (*_APPROXIMATE, "balanced.num_workers = 40", "balanced.num_chunks = 80"),
    "partial_stragglers/pareto": (*_APPROXIMATE, *_REGULAR),
    "partial_stragglers/training": (*_COMPARISON, "compare.schemes = {'partial': @partial/coded()}"),
    "partial_stragglers/training_communication": (*_COMPARISON, "compare.schemes = {'Ye-Abbe, load 4': @abbe/coded()}"),
    "protocols": (
        "protocol_map.schemes = {'ASP': @asp(), 'partial L=2': @two/coded()}",
        "protocol_map.networks = {'free': @free/constant_network()}",
        "study.optimizers = {}",
        "tuning.own_rates = {}",
        "study.num_units = 60",
        "study.seconds = None",
        "tuning.num_trials = 2",
        "study.num_seeds = 2",
        "study.target = 0.2",
    ),
    "published/dylu": (
        *_PUBLISHED,
        "published.schemes = {'async DN': @dn/async_local_sgd(), 'DiLoCo': @diloco()}",
        "published.claims = [('async DN', 'DiLoCo', 'faster')]",
        "gaussian_mixture.num_examples = 64",
        "gaussian_mixture.hidden = 4",
    ),
    "published/halos": (
        *_PUBLISHED,
        "published.schemes = {'HALoS': @halos(), 'async local SGD': @async_local_sgd()}",
        "published.networks = {'HALoS': @region/constant_network()}",
        "published.claims = [('HALoS', 'async local SGD', 'faster')]",
        "halos.num_local_steps = 2",
        "halos.num_contributions = 2",
        "async_local_sgd.num_local_steps = 2",
        "digits.hidden = (4,)",
    ),
    "published/ringleader": (
        *_PUBLISHED,
        "num_workers = 4",
        "published.schemes = {'Malenia': @malenia(), 'IA2SGD': @ia2sgd()}",
        "published.claims = [('Malenia', 'IA2SGD', 'faster')]",
        "tuning.own_rates = {}",
        "digits_of_clients.hidden = (4,)",
    ),
    "published/ringmaster": (
        *_PUBLISHED,
        "num_workers = 4",
        "published.schemes = {'Ringmaster, R=2': @r2/ringmaster(), 'ASGD': @asp()}",
        "published.claims = [('Ringmaster', 'ASGD', 'faster')]",
        "tridiagonal_quadratic.dimension = 5",
    ),
    "quickstart": (*_COMPARISON, "compare.schemes = {'ASP': @asp(), 'partial L=2': @partial2/coded()}"),
    "smallest": ("study.num_units = 60", "study.target = 0.2"),
    "traces/advise": (
        "traces.synthetic = {'independent': @shifted_exponential()}",
        "traces.synthetic_names = ('bsp', 'asp')",
        "traces.num_traces = 2",
        "traces.num_steps = 64",
        "traces.num_bootstraps = 20",
    ),
    "traces/schemes": (*_COMPARISON, "compare.schemes = {'BSP': @bsp(), 'FRC, s=1': @coded()}"),
    "transformer": ("transformer.num_steps = 2", "transformer.width = 4", "transformer.depth = 0"),
    "worker_busy/digits": (
        "study.num_units = 60",
        "study.num_seeds = 2",
        "study.seconds = None",
        "study.target = 0.2",
        "worker_busy_claims.settings = {'H1': @h1/delayed()}",
        "worker_busy_claims.others = {'BSP': @bsp()}",
    ),
}
"""Name of a config -> gin statements that make it small."""

SKIPPED = {
    "live": "it is a job of several processes: tests/experiments/test_live.py",
    "live/protocols": "it is a job of several processes: tests/experiments/test_live_protocols.py",
    "protocols_traces": "it is given files of measured times: tests/experiments/test_protocols.py makes some",
    "worker_busy/cifar10": "its data is not here: tests/tasks/test_cifar.py makes some",
}
"""Name of a config -> why it is not run."""
