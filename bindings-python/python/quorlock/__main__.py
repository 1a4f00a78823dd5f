"""Runs the `quorlock` command as `python -m quorlock`."""

import sys

from ._command_line import main

sys.exit(main())
