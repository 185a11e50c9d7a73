"""The command line: ``siltstone --path URL COMMAND``.

Keys and values are UTF-8 text, or hexadecimal with ``--hex``, or base64 with ``--base64``. With
``--escaped``, text has the escapes that `scan` prints, such as ``\\xNN`` for a byte. Every command
has ``--json``.

An error is one line on standard error. The exit status is 0 after success, 1 after an error, 2
after a wrong call, 3 when the requested key is absent, and 141 when the output is closed early.
``verify`` prints one line for each problem, and exits with 1 if there is any.

Reports are tables on a terminal, and ``name<TAB>value`` lines elsewhere. Set ``NO_COLOR`` in the
environment to turn colours off.
"""

from __future__ import annotations

from siltstone.cli._program import main

__all__ = ["main"]
