"""Passes the output of ``cargo test`` on and prints its ten slowest test programs at the end."""

from __future__ import annotations

import re
import sys
from collections import Counter

PROGRAM = re.compile(r"^ +(?:Running (?:unittests )?|Doc-tests )(\S+(?: \S+)?)")
RESULT = re.compile(r"^test result: .*finished in ([0-9.]+)s")


def main() -> None:
    """Reads standard input line by line, so that progress stays visible."""
    took: Counter[str] = Counter()
    program = ""
    for line in sys.stdin:
        sys.stdout.write(line)
        sys.stdout.flush()
        if found := PROGRAM.match(line):
            program = found[1]
        elif found := RESULT.match(line):
            took[program] += float(found[1])
    print("\nThe ten slowest test programs, in seconds:")
    for name, seconds in took.most_common(10):
        print(f"{seconds:8.1f}  {name}")


if __name__ == "__main__":
    main()
