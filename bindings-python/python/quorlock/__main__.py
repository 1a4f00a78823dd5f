"""`python -m quorlock` is the `quorlock` command."""

import sys

from ._command_line import main

sys.exit(main())
