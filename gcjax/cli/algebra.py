"""The command `gcjax algebra`."""

import argparse
from pathlib import Path


def laws(options: argparse.Namespace) -> int:
    """Tries every law, or writes the table as a page; returns the exit status."""
    import jax

    from gcjax import _validate, progress
    from gcjax.algebra import laws

    if options.page:
        Path(options.page).write_text(laws.markdown())
        return 0
    hint = "All of them are tried at once."
    _validate.integer("num_instances", options.instances, minimum=1, maximum=1024, hint=hint)
    key = jax.random.key(_validate.integer("seed", options.seed, maximum=2**32 - 1))
    results = laws.check_all(
        num_states=options.states, max_steps=options.steps, num_instances=options.instances, rng_key=key
    )
    console = progress.console()
    console.print(laws.table(results))
    for surprising in (False, True):
        console.print(laws.counterexamples(results, expected=not surprising), markup=False, highlight=False)
    wrong = sum(not result.expected for result in results)
    console.print(f"{len(results)} laws, {wrong} otherwise than expected.", highlight=False)
    return 1 if wrong else 0
