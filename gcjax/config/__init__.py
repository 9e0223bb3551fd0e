"""Experiments described in gin files: what can be named, loading, and errors that a person can act on.

A config file imports its experiment and says which one to run:

    import experiments.compare
    run.experiment = @compare

An experiment is a function, marked with `gcjax.config.experiment`, that takes `out` (the folder to write) and
`progress` (see `gcjax.progress`); everything else that it takes is bound in the config file.
"""

from gcjax.config.loading import experiment, key, load, mesh, operative, register, run, start, text

__all__ = ["experiment", "key", "load", "mesh", "operative", "register", "run", "start", "text"]
