"""`python -m gcjax` is the same as the command `gcjax`."""

import signal
import sys


def main() -> int:
    """Runs the command; until `gcjax.interrupts` is imported and takes over, Ctrl-C ends it without a traceback."""
    _end_without_traceback_on_ctrl_c()
    from gcjax import cli

    return cli.main()


def _end_without_traceback_on_ctrl_c() -> None:
    """Lets the operating system answer Ctrl-C, unless the process was started to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
