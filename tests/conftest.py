"""Eight CPU devices, compiled programs shared, the option --slow, strict numerics in the folders clean under it.

GCJAX_TEST_DEVICES is another number of devices.
"""

import collections
import contextlib
import gc
import importlib.metadata
import os
import pathlib
import signal
import threading

NUM_DEVICES = os.environ.get("GCJAX_TEST_DEVICES", "8")
FLAGS = [os.environ.get("XLA_FLAGS", ""), f"--xla_force_host_platform_device_count={NUM_DEVICES}"]
if importlib.metadata.version("jaxlib").split(".")[:2] in (["0", "8"], ["0", "9"], ["0", "10"]):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # an older way of XLA that compiles in less time
    FLAGS.append("--xla_cpu_parallel_codegen_split_count=1")  # each piece costs more, and the workers have all cores
os.environ["XLA_FLAGS"] = " ".join(FLAGS)
# On small matrices BLAS takes longer with several threads, which wait in a loop while another process has their core.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Compiling is most of the time of all tests, so it is done with few optimisations, and once: what has been compiled is
# kept in a folder, also for the next time; one for each worker of pytest-xdist, since JAX writes its files piecemeal.
# Which worker gets which tests changes from time to time, so each begins with what all have compiled before, and takes
# over what the others have compiled meanwhile.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
PROGRAMS = pathlib.Path(__file__).parent.parent / ".pytest_cache" / "programs" / WORKER
COMMON = PROGRAMS.parent / "common"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # nobody reads where operations come from
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"  # with one, programs are named by their folder, too

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

from gcjax import files, memory  # noqa: E402

# Test folders in which JAX promotes neither types nor ranks silently.
STRICT = {"codes", "compression", "engine", "protocols", "stragglers", "tasks"}

hypothesis.settings.register_profile("gcjax", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("gcjax")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--part", metavar="K/N", default="0/1", help="of the chosen tests every N-th, from number K on")


def share_contexts_of_lowering(num_programs=32):
    """So many programs in a row share one, since to make it takes half the time of lowering a small program."""
    try:
        from jax._src.interpreters import mlir

        make_context = mlir.make_ir_context
    except (ImportError, AttributeError):  # another version of JAX
        return
    of_thread = threading.local()

    def shared_context():
        if getattr(of_thread, "num_left", 0) == 0:
            of_thread.context, of_thread.num_left = make_context(), num_programs
        of_thread.num_left -= 1
        return of_thread.context

    mlir.make_ir_context = shared_context


def pytest_sessionstart():
    share_contexts_of_lowering()
    if jax.default_backend() != "cpu":  # tests hold networks in float32 against each other, too
        jax.config.update("jax_default_matmul_precision", "highest")
    link_all(COMMON, PROGRAMS)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; processes would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tracing makes many objects, few of them in cycles: to look for these as often as usual takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(200_000, 20, 1000)


def pytest_sessionfinish():
    link_all(PROGRAMS, COMMON)


LINKED = set()
"""Names of files that are in both folders."""


def link_all(source, target):
    """Makes all files of a folder be in another one, too; each is whole when it gets its name there."""
    if not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for name in set(os.listdir(source)) - LINKED:
        with contextlib.suppress(OSError):  # another worker was faster, or links are not to be had
            os.link(source / name, target / name)
        LINKED.add(name)


def pytest_itemcollected(item):
    """Of a test marked slow with the names of some cases, only these are."""
    for mark in [mark for mark in item.own_markers if mark.name == "slow" and mark.args]:
        if item.callspec.id not in mark.args:
            item.own_markers.remove(mark)


@pytest.hookimpl(trylast=True)  # when -m and -k have chosen
def pytest_collection_modifyitems(config, items):
    first, step = map(int, config.getoption("--part").split("/"))
    with_slow = config.getoption("--slow")
    chosen = [item for item in items[first::step] if with_slow or item.get_closest_marker("slow") is None]
    if len(chosen) < len(items):
        others = set(items) - set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = chosen


@pytest.fixture(autouse=True)
def strict_numerics(request):
    """Errors instead of promotion, so that no float64 or misplaced axis slips in."""
    if request.path.parent.name not in STRICT or request.node.get_closest_marker("promotes"):
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


MAX_MAPPINGS = 15_000, 40_000
"""Of memory, behind a module of tests and within one: see `gcjax.memory.forget_programs`. A module of slow tests can
need more than Linux allows."""
NEW_PROGRAMS = collections.Counter()


def count_programs(event, seconds, **facts):
    """Compiled, or read from the folder; each is traced, lowered and compiled, which are events."""
    NEW_PROGRAMS["events"] += "compile" in event


jax.monitoring.register_event_duration_secs_listener(count_programs)


def share_and_forget_programs(max_mappings):
    """Between two tests, when no file is half written; only where about a hundred programs are new, since to look
    takes ten milliseconds.
    """
    if NEW_PROGRAMS["events"] >= 300:
        NEW_PROGRAMS.clear()
        link_all(PROGRAMS, COMMON)
        link_all(COMMON, PROGRAMS)
        memory.forget_programs(max_mappings)


@pytest.fixture(autouse=True, scope="module")
def few_programs_behind_a_module():
    yield
    share_and_forget_programs(MAX_MAPPINGS[0])


@pytest.fixture(autouse=True)
def few_programs_within_a_module():
    yield
    share_and_forget_programs(MAX_MAPPINGS[1])


@pytest.fixture(scope="module")
def without_drawing():
    """Figures are made but not drawn, which takes half a second for each comparison; their files are empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "write_figure", lambda path, figure: files.write_text(path, ""))
        yield


@pytest.fixture
def x64():
    """64-bit types for one test."""
    with jax.enable_x64(True):
        yield
