"""What a command says of an error that nobody foresaw: a few lines, unless everything is asked for."""

import os
import traceback

_CALL = "\n  In call to configurable "


def is_traceback_wanted(flag: bool) -> bool:
    """Whether everything is to be shown, by the option --traceback or by the environment."""
    return flag or os.environ.get("GCJAX_TRACEBACK", "") not in ("", "0")


def lines(error: Exception) -> str:
    """At most four lines: the error, the place in the config, the line of code, and how to see everything."""
    message, *calls = str(error).split(_CALL)
    first = (message.strip().splitlines() or ["without a message"])[0]
    names = [call.split("'")[1] for call in calls if call.count("'") > 1]
    frames = traceback.extract_tb(error.__traceback__)
    shown = [f"gcjax: unexpected {type(error).__name__}: {first[:300]}"]
    if names:
        shown.append(f"  (in {names[0]} of the config)")
    if frames:
        shown.append(f"  (at {frames[-1].filename} line {frames[-1].lineno})")
    shown.append("  Nobody foresaw this. The option --traceback, or GCJAX_TRACEBACK=1, shows all of it.")
    return "\n".join(shown)
