"""Errors of tasks as the package's own types.

Spark reports the failure of a task as the text of a traceback. The class and the message of an
error of this package are in that text, and only these are used here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from siltstone import exceptions
from siltstone._open import with_remedy
from siltstone.exceptions import Denied, Error

__all__ = ["error_of", "worker_errors"]

RAISED = re.compile(r"^\s*(?:\S+: )?siltstone\.exceptions\.(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback: the class of an error and its message."""


def error_of(failure: BaseException) -> Error | None:
    """The error of this package that made a Spark job fail; None: another error did.

    :param failure: the error that Spark raised.
    """
    if isinstance(failure, Error):
        return failure
    found = RAISED.findall(str(failure))
    if not found:
        return None
    # An error that was raised while another was handled is the later one.
    name, message = found[-1]
    kind = getattr(exceptions, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Error)):
        return None
    error = kind(message.strip(), operation="spark")
    return with_remedy(error) if isinstance(error, Denied) else error


@contextmanager
def worker_errors() -> Iterator[None]:
    """Raises errors of this package that occur in Spark's tasks as what they are, instead of
    `PythonException`, which holds a traceback as text. The functions of `siltstone.spark` that run
    jobs do so already. Use it for actions of your own:

    ``with worker_errors(): scan(spark, url).write.parquet(path)``

    The original error is the cause (`__cause__`). Other errors pass unchanged.

    :raises Corruption, Denied, Expired, Invalid, NotFound, Unavailable, Unsupported: as the reads
        and writes in the tasks.
    """
    try:
        yield
    except Error:
        raise
    except Exception as failure:
        found = error_of(failure)
        if found is None:
            raise
        raise found from failure
