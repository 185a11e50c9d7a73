"""Runs the command line: ``python -m siltstone``."""

from __future__ import annotations

from siltstone.cli import main

if __name__ == "__main__":
    main()
