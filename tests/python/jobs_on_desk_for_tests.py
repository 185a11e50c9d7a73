"""Shared state of the processes of `kills_of_jobs_for_tests.py`: the batches of the writers, in
shared memory, and a folder with jobs, parts, requests and the notes of each process. All of it
stays after a process is killed.
"""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kills_for_tests as single
from apps_judged_for_tests import Answer, Forgotten
from jobs_judged_for_tests import Told
from jobs_planned_for_tests import Look, Plan

# More batches than the writers of one database make.
BATCHES = 1 << 18


class Board:
    """The begun and the acknowledged batches of all writers, in memory that outlives them."""

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
        """Sequence numbers of acknowledged batches, each with its batch."""
        numbers = self.numbers[2 * self.writers :]
        return [(seq, batch) for batch, seq in enumerate(numbers) if seq]


@dataclass
class Tray:
    """The contents of the folder: file names by job."""

    jobs: dict[int, str] = field(default_factory=dict)
    parts: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    requests: dict[int, list[str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """By application: the highest version that was used in its present life."""
    lives: dict[str, int] = field(default_factory=dict)
    """By application: how often it was forgotten."""
    aborted: set[int] = field(default_factory=set)

    def lacks(self, job: int, *, again: bool = False) -> list[int]:
        """The parts of a job that are not built yet; with `again`, all of them."""
        count = int(self.jobs[job].split(".")[2])
        return [part for part in range(count) if again or (job, part) not in self.parts]


class Desk:
    """The folder in which processes leave files for one another."""

    def __init__(self, path: Path, board: Board, *, fills: bool) -> None:
        self.path, self.board = path, board
        # Whether the database allows jobs that come behind its data.
        self.fills = fills
        self.folder = path.with_suffix(".desk")

    def leave(self, name: str, what: object) -> None:
        """Writes a file whole or not at all, even if the process is killed."""
        draft = self.folder / f"draft-{os.getpid()}"
        draft.write_bytes(pickle.dumps(what))
        draft.rename(self.folder / name)

    def take(self, name: str) -> Any:
        return pickle.loads((self.folder / name).read_bytes())

    def tray(self) -> Tray:
        tray = Tray()
        names = sorted(path.name for path in self.folder.iterdir())
        for name in names:
            if name.startswith("forgotten."):
                app = name.split(".")[1]
                tray.lives[app] = tray.lives.get(app, 0) + 1
        for name in names:
            kind, *rest = name.split(".")
            if kind == "job":
                tray.jobs[int(rest[0])] = name
                app, version, life = rest[2], int(rest[3]), int(rest[4])
                if life == tray.lives.get(app, 0):
                    tray.versions[app] = max(version, tray.versions.get(app, 0))
            elif kind == "part":
                tray.parts.setdefault((int(rest[0]), int(rest[1])), []).append(name)
            elif kind == "request":
                tray.requests.setdefault(int(rest[0]), []).append(name)
            elif kind == "aborted":
                tray.aborted.add(int(rest[0]))
        return tray


def read_notes(desk: Desk) -> tuple[dict[int, Plan], Told, int]:
    """The plans, the notes of all processes, and the highest number of opens beside those of the
    writers."""
    # Grouped by the first key of a note.
    notes: dict[str, list[dict[str, Any]]] = {}
    for file in desk.folder.glob("notes.*"):
        # A kill may have cut the last line: such a note does not count.
        for line in file.read_bytes().split(b"\n")[:-1]:
            note = json.loads(line)
            notes.setdefault(next(iter(note)), []).append(note)
    plans = {plan.number: plan for plan in (Plan.of_plain(n["plan"]) for n in notes["plan"])}
    told = Told(seqs=desk.board.seqs, acknowledged=desk.board.acknowledged)
    told.looks = [Look.of_plain(note["look"]) for note in notes.get("look", [])]
    for note in notes.get("asks", []):
        job = note["asks"]
        told.behind[job] = min(told.behind.get(job, BATCHES), note["behind"])
        told.asked[job] = min(told.asked.get(job, math.inf), note["since"])
    told.begun = {note["begun"]: (note["since"], note["at"]) for note in notes.get("begun", [])}
    told.forgotten = list(forgotten(notes))
    names = ("how", "job", "state", "until", "since", "at")
    for note in notes.get("how", []):
        told.add(Answer(*(note[name] for name in names)), note["seq"])
    return plans, told, len(notes.get("opens", []))


def forgotten(notes: dict[str, list[dict[str, Any]]]) -> Iterator[Forgotten]:
    """The forgets. A process killed before the answer may have forgotten the application until its
    end."""
    ends = {note["ended"]: note["at"] for note in notes["ended"]}
    answers = {note["forgot"]: note for note in notes.get("forgot", [])}
    for note in notes.get("forgets", []):
        number = note["forgets"]
        answer = answers.get(number)
        if answer is None:
            yield Forgotten(note["app"], note["since"], ends[number // 1000], sure=False)
        elif answer["is_so"]:
            yield Forgotten(note["app"], note["since"], answer["at"], sure=True)
