"""Several processes that run one program together, on one machine or on many.

    with gcjax.processes.group(coordinator="10.0.0.1:1234", num_processes=4, process_id=0):
        ...  # jax.devices() are now those of all processes

What JAX leaves to the program is here: only process 0 writes and prints (`is_first`), all processes have the same
config (`agree`, `share`), and a process that is lost ends the others instead of leaving them waiting (`group`).
Everything works unchanged in a single process, where it does next to nothing.

A process ends with status 0; 2 if there is something to change (a `ValueError`); 3 if another process was lost or ended
with an error; 1 if it ended with an error itself.
"""

from gcjax.processes.apart import ApartPlace, apart, asks_for_apart, current_place
from gcjax.processes.group import LOST, group
from gcjax.processes.rendezvous import Rendezvous, rendezvous
from gcjax.processes.share import ErrorOnAllProcesses, agree, is_first, share

__all__ = [
    "LOST",
    "ApartPlace",
    "ErrorOnAllProcesses",
    "Rendezvous",
    "agree",
    "apart",
    "asks_for_apart",
    "current_place",
    "group",
    "is_first",
    "rendezvous",
    "share",
]
