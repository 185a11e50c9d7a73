"""Measures one size of one dimension, in a process of its own, and prints it as JSON.

    point.py DIMENSION SIZE ENGINE FOLDER

It never deletes the folder: `run.py` does, also after it had to end the process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dimensions import ALL
from meter import Meter


def main() -> None:
    """Measure, and print the figures."""
    name, size, engine, folder = sys.argv[1:]
    meter, dimension = Meter(), ALL[name](int(size))
    if engine == "siltstone":
        dimension.prepare(Path(folder))
        dimension.measure(meter, Path(folder))
    else:
        dimension.measure_peer(meter, engine, Path(folder))
    sys.stdout.write(json.dumps(meter.figures) + "\n")


if __name__ == "__main__":
    main()
