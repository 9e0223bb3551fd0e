"""The command `gcjax algebra`."""

import argparse


def laws(options: argparse.Namespace) -> int:
    """`gcjax algebra laws`: tries every law of the program algebra on random commands, or only prints their table.

    Args:
      options: `page` (to print their page in Markdown instead of trying), how many `states`, `steps` at most, and
        `instances`, and the `seed` of these.

    Returns:
      The exit status: 0, or 1 if a law comes out otherwise than its table says.
    """
    import jax

    from gcjax import _validate, progress
    from gcjax.algebra import laws as program_laws

    if options.page:
        print(program_laws.markdown(), end="")
        return 0
    hint = "All of them are tried at once."
    _validate.integer("num_instances", options.instances, minimum=1, maximum=1024, hint=hint)
    key = jax.random.key(_validate.integer("seed", options.seed, maximum=2**32 - 1))
    results = program_laws.check_all(
        num_states=options.states, max_steps=options.steps, num_instances=options.instances, rng_key=key
    )
    console = progress.console()
    console.print(program_laws.table(results))
    for is_expected in (True, False):
        counterexamples = program_laws.counterexamples(results, is_expected=is_expected)
        console.print(counterexamples, markup=False, highlight=False)
    num_unexpected = sum(not result.is_expected for result in results)
    console.print(f"{len(results)} laws, {num_unexpected} otherwise than expected.", highlight=False)
    return 1 if num_unexpected else 0
