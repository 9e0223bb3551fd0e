"""`python -m gcjax` is the same as the command `gcjax`."""

import sys

from gcjax.cli import main

sys.exit(main())
