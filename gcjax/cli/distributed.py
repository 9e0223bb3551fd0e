"""The options of several processes, and the group that they ask for."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

_STDOUT = 1  # the file descriptor, which libraries in C++ write to


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that tell a process which one of several it is, and how to reach the others."""
    group = parser.add_argument_group(
        "several processes",
        "Every process is started with the same command; process 0 writes and prints. SLURM, Open MPI before 5, TPU "
        "pods and GKE are detected; elsewhere each process is told its place by hand. If one is lost, all others end "
        "with status 3 and say which.",
    )
    group.add_argument("--distributed", action="store_true", help="run as one of several processes")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="a free port of the machine of process 0")
    group.add_argument("--num-processes", metavar="N", type=int, help="processes in all")
    group.add_argument("--process-id", metavar="I", type=int, help="which one this is, from 0")
    group.add_argument(
        "--timeout", metavar="SECONDS", type=float,
        help="wait so long for process 0 to be reached, and then for all others (default: 60)",
    )  # fmt: skip
    group.add_argument(
        "--lost-after", metavar="SECONDS", type=float,
        help="a process of which nothing is heard for so long is lost (default: 30); one that is killed is so at once",
    )  # fmt: skip
    group.add_argument(
        "--secret-file", metavar="FILE",
        help="the secret that all processes share (default: the environment variable GCJAX_SECRET, or the file that "
        "GCJAX_SECRET_FILE names); one is required unless the coordinator is a loopback address",
    )  # fmt: skip
    group.add_argument(
        "--no-secret", action="store_const", const=True, help="believe everybody who reaches the port of process 0"
    )
    group.add_argument(
        "--bind", metavar="HOST",
        help="the interface on which process 0 listens, 0.0.0.0 or :: for all (default: that of the coordinator's "
        "address, or all where that is none of its machine's)",
    )  # fmt: skip


def group(options: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """The group of processes that the options ask for, to be entered; without `--distributed`, one that does nothing.

    Raises:
      ValueError: if there are options for several processes, but no `--distributed`; or `--lost-after` for a config
        whose processes are apart.
    """
    from gcjax import processes

    given_options = group_options(options)
    if options.distributed and processes.asks_for_apart(options.config, options.bindings):
        if given_options.pop("lost_after", None) is not None:
            raise ValueError("Processes that are apart do not lose each other; leave out --lost-after.")
        return _only_first_prints(processes.apart(**given_options))
    if options.distributed:
        return _only_first_prints(processes.group(**given_options))
    if given_options:
        flags = ", ".join("--" + name.replace("_", "-") for name in given_options)
        raise ValueError(f"Options for several processes need --distributed; got {flags} without it.")
    return contextlib.nullcontext()


def group_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `gcjax.processes.group` that were given on the command line, by name."""
    names = ("coordinator", "num_processes", "process_id", "timeout", "lost_after", "secret_file", "no_secret", "bind")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


@contextlib.contextmanager
def _only_first_prints(group: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Enters a group of processes and sends the stdout of all but the first nowhere, also that of libraries in C++."""
    from gcjax import processes

    with group:
        if not processes.is_first():
            with open(os.devnull, "w") as null_device:
                os.dup2(null_device.fileno(), _STDOUT)
        yield
