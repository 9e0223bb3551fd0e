"""`python -m gcjax` is the same as the command `gcjax`."""

import signal
import sys


def main() -> int:
    """Runs the command; until `gcjax.interrupts` is imported and takes over, Ctrl-C ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless it was started to ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gcjax import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
