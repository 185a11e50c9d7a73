"""Texts of the library in the words of the command line. Texts of the library name Python's
functions and parameters as remedies; the command line names its own commands and options. It never
shows a remedy that only a program can use, if it has one of its own.
"""

from __future__ import annotations

import re

# Each pattern is replaced, in this order. A test finds every pattern in the sources of the library,
# and another finds no name of Python in the errors of the commands.
_REMEDIES = (
    (
        r"there is no database here; check the path(, or open it with create)?",
        "there is no database here; check the path, or make one with `siltstone --path URL create`",
    ),
    (r"destroy it without soft", "run `siltstone --path URL destroy --yes`"),
    (r"destroy it softly", "destroy it with --soft"),
    (r"\bwith release_clone\('([^']*)'\)", r"with `siltstone --path URL release-clone \1`"),
    (r"release the pin with force", "release the pin with --force"),
    (r"\brelease_clone\b", "`siltstone --path URL release-clone CLONE`"),
    (r"\bdelete_checkpoint\b", "`siltstone --path URL delete-checkpoint --id ID`"),
    (r"\bsorted=True", "--sorted"),
    (r'\bchoose another value than duplicates="error"', "give --duplicates last"),
    (r'\bsince="snapshot", "oldest" or "latest"', "--since snapshot, oldest or latest"),
    (r"\bname a consumer\b", "name one with --consumer"),
    (r"\bwithout allow_ingest_behind\b", "without --allow-ingest-behind"),
    (r"open with take_over to end it", "if no other writer is alive, give --take-over"),
    (r"(by opening with )?\btake_over\b(=True)?", "with --take-over"),
    (r"\bopen_reader\b", "`siltstone get`"),
    (r"\bcall compact\(\)", "run `siltstone --path URL compact`"),
    (r"\bwith load\(\)", "with `siltstone --path URL ingest`"),
    (r"\bsmaller largest_object\b", "smaller --largest-object"),
    (r"`siltstone ingest --list` and `Job.id` show it", "`siltstone ingest --list` shows it"),
    (
        r"give `store_options` a function that returns the keys, for instance from boto3",
        "set AWS_ACCESS_KEY_ID and the other keys, as `aws configure export-credentials` shows",
    ),
    (r"\bbring one to open\b", "name it with --merge-operator"),
    (r"open the database with its merge operator", "name their operator with --merge-operator"),
    (r"\bmerge_operator\b", "--merge-operator"),
)


def _in_our_words(text: str) -> str:
    """A text of the library in one line, with the remedy that the command line offers."""
    line = " ".join(text.split())
    for pattern, remedy in _REMEDIES:
        line = re.sub(pattern, remedy, line)
    return line


def _told(error: BaseException) -> str:
    """An error of the library in one line, with the remedy that the command line offers."""
    # The user knows which command failed, so the name of the library's operation is left out.
    what = str(error).removeprefix(f"{getattr(error, 'operation', None)}: ")
    return _in_our_words(f"{type(error).__name__}: {what}")
