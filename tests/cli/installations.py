"""The installations of the `quorlock` command.

All of them run the same code, but pip's runs it in a process of Python and npm's in one of Node.js.
Such a process may have set signals, files, arguments or the terminal differently.
"""

import pytest

every_installation = pytest.mark.parametrize("quorlock", ["cargo", "pip", "npm"], indirect=True)
"""Runs a test with each installation. Without this mark, a test runs the program of cargo."""
