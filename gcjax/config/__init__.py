"""Experiments described in gin files: what can be named, loading, and errors that a person can act on.

A config file says which experiment to run, and imports its module unless it is one of gcjax itself:

    import experiments.protocols
    run.experiment = @protocol_map

An experiment is a function, marked with `gcjax.register("experiment")`, that takes `out` (the folder to write) and
`progress` (see `gcjax.progress`); everything else that it takes is bound in the config file.
"""

from gcjax.config.loading import digest, key, load, mesh, operative, register_entries, run, run_loaded, text

__all__ = ["digest", "key", "load", "mesh", "operative", "register_entries", "run", "run_loaded", "text"]
