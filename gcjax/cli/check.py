"""The command `gcjax check`."""

import argparse


def command(options: argparse.Namespace) -> int:
    """`gcjax check`: checks a specification, or the schedules of a config; returns the exit status, 0 or 1."""
    if (options.schedule is None) == (options.protocol is None):
        raise ValueError("check takes either a PROTOCOL or --schedule CONFIG; see gcjax check --help.")
    from gcjax.cli import cached_programs

    cached_programs.use_cache_folder()
    if options.schedule is not None:
        from gcjax.cli import check_json, check_schedules

        options.result = check_json.schedules_json(check_schedules.run(options.schedule, options.bindings))
    else:
        if options.bindings:
            raise ValueError("--set is for a config. Add --schedule CONFIG instead of the PROTOCOL, or leave it out.")
        from gcjax.cli import check_json, check_specification

        options.result = check_json.specification_json(check_specification.run(options.protocol, options.parameters))
    return 0 if options.result["holds"] else 1
