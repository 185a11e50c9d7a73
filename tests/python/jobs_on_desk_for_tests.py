"""What the processes of `kills_of_jobs_for_tests.py` share: what writers have begun, in memory; and
a folder of jobs, parts and requests, and of what each process was told. All of it outlives whoever
is killed.
"""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kills_for_tests as single
from jobs_judged_for_tests import Look, Plan, Told

# More than the writers of one database come to.
BATCHES = 1 << 18


class Board:
    """What writers have begun and had acknowledged, in memory that outlives them."""

    def __init__(self, writers: int) -> None:
        self.writers = writers
        self.numbers = single.Slots(2 * writers + BATCHES).numbers

    def begins(self, writer: int, batch: int) -> None:
        self.numbers[writer] = batch

    def acknowledges(self, writer: int, batch: int, seq: int) -> None:
        self.numbers[2 * self.writers + batch] = seq
        self.numbers[self.writers + writer] = batch

    @property
    def begun(self) -> int:
        return max(self.numbers[: self.writers])

    @property
    def acknowledged(self) -> int:
        return max(self.numbers[self.writers : 2 * self.writers])

    @property
    def seqs(self) -> list[tuple[int, int]]:
        """Sequence numbers of acknowledged batches."""
        numbers = self.numbers[2 * self.writers :]
        return [(seq, batch) for batch, seq in enumerate(numbers) if seq]


@dataclass
class Tray:
    """What lies in the folder: names, by job."""

    jobs: dict[int, str] = field(default_factory=dict)
    parts: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    requests: dict[int, list[str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def lacks(self, job: int) -> list[int]:
        """Its parts that nobody has built."""
        count = int(self.jobs[job].split(".")[2])
        return [part for part in range(count) if (job, part) not in self.parts]


class Desk:
    """The folder in which processes leave things to one another."""

    def __init__(self, path: Path, board: Board) -> None:
        self.path, self.board = path, board
        self.folder = path.with_suffix(".desk")

    def leave(self, name: str, what: object) -> None:
        """Whole or not at all, whenever its process is killed."""
        draft = self.folder / f"draft-{os.getpid()}"
        draft.write_bytes(pickle.dumps(what))
        draft.rename(self.folder / name)

    def take(self, name: str) -> Any:
        return pickle.loads((self.folder / name).read_bytes())

    def tray(self) -> Tray:
        tray = Tray()
        for name in sorted(path.name for path in self.folder.iterdir()):
            kind, *rest = name.split(".")
            if kind == "job":
                tray.jobs[int(rest[0])] = name
                app, version = rest[2], int(rest[3])
                tray.versions[app] = max(version, tray.versions.get(app, 0))
            elif kind == "part":
                tray.parts.setdefault((int(rest[0]), int(rest[1])), []).append(name)
            elif kind == "request":
                tray.requests.setdefault(int(rest[0]), []).append(name)
            elif kind == "aborted":
                tray.aborted.add(int(rest[0]))
        return tray


def read_notes(desk: Desk) -> tuple[dict[int, Plan], Told, int]:
    """Plans, what was told, and how many may have opened the database beside the writers."""
    plans, told, opens = dict[int, Plan](), Told(seqs=desk.board.seqs), 0
    told.acknowledged = desk.board.acknowledged
    for file in desk.folder.glob("notes.*"):
        # A last line that was cut by a kill was told to nobody.
        for line in file.read_bytes().split(b"\n")[:-1]:
            note = json.loads(line)
            if "plan" in note:
                plan = Plan.of_plain(note["plan"])
                plans[plan.number] = plan
            elif "look" in note:
                told.looks.append(Look.of_plain(note["look"]))
            elif "asks" in note:
                before = told.asked.get(note["asks"], BATCHES)
                told.asked[note["asks"]] = min(before, note["behind"])
            elif "opens" in note:
                opens += 1
            else:
                told.add(note["how"], note["job"], note["state"], note["seq"], note["until"])
    return plans, told, opens
