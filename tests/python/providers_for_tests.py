"""A provider of store options that another process can import by its name."""

from __future__ import annotations

import os


def from_environment() -> dict[str, str | bool]:
    """Store options from the environment of this process."""
    return {
        "endpoint": os.environ["TEST_ENDPOINT"],
        "secret_access_key": os.environ["TEST_SECRET"],
        "access_key_id": "AKIAPUBLICPART",
        "region": "r",
        "allow_http": True,
    }


def nothing() -> dict[str, str]:
    """A store that needs no options."""
    return {}


def of_a_variable() -> dict[str, str]:
    """A store that needs no options. It fails with its own error if a variable is not set."""
    assert os.environ["TEST_PROVIDER"]
    return {}


def wrong() -> int:
    """A value that is not valid as store options."""
    return 3
