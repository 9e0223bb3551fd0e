"""Where the runs of a study are saved on their way."""

from pathlib import Path
from typing import NamedTuple

from gcjax import engine
from gcjax.analysis import file_name


class Checkpointing(NamedTuple):
    """Where the runs of a study are saved on their way.

    Attributes:
      folder: gets one folder for each run.
      every: evaluations from one checkpoint to the next.
      keep: the checkpoints kept of a run.
      config: what the bits depend on besides the inputs, as text.
    """

    folder: Path
    every: int
    keep: int
    config: str

    def checkpoints(self, *names: str) -> engine.Checkpoints:
        """Those of one run."""
        folder = self.folder.joinpath(*map(file_name, names))
        return engine.Checkpoints(folder, every=self.every, keep=self.keep, label=", seed ".join(names))
