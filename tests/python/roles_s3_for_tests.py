"""Serves S3 with users and policies, for the tests of access policies.

moto holds the users, checks their signatures, and evaluates actions and resources. It has four
gaps, which this module closes as the documentation of AWS describes S3:

- moto ignores the condition ``StringLike`` on ``s3:prefix`` of a listing.
- moto answers 404 for a missing object to every caller. S3 does so only if the caller may list the
  name, and answers 403 otherwise.
- moto authorizes a delete of many objects by the bucket. S3 authorizes each object.
- moto authorizes a copy by its target. S3 also requires the right to read its source.

Run as a program, it serves from memory on a loopback port until standard input closes, one request
at a time, and prints the port. It writes a line for each right that a request needs to the file
that its argument names: the user's access key, the action and the resource.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET

from moto.iam import access_control
from moto.s3.exceptions import S3ClientError
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

ARN = "arn:aws:s3:::"
_Moto = access_control.S3IAMRequest


class Request(_Moto):
    """A request, with all rights that S3 would ask for."""

    log: Path

    def check_action_permitted(self, resource: str) -> None:
        for action, name in self.needed(resource.removeprefix(ARN)):
            self._action = action
            with self.log.open("a") as log:
                log.write(f"{self._access_key._access_key_id} {action} {name}\n")
            if action != "s3:ListBucket":
                super().check_action_permitted(ARN + name)
            elif not self.may_list(*name.split("/", 1)):
                self._raise_access_denied()

    def needed(self, name: str) -> Iterator[tuple[str, str]]:
        """The rights, as actions and names: a bucket and a key, or a bucket and a prefix."""
        url = urlsplit(self._path)
        query = parse_qs(url.query, keep_blank_values=True)
        if self._action == "s3:ListBucket":
            yield self._action, f"{name}/{query.get('prefix', [''])[0]}"
        elif self._action == "s3:DeleteObject" and "delete" in query:
            for element in ET.fromstring(self._body).iter():
                if element.tag.rpartition("}")[2] == "Key":
                    yield self._action, f"{name}/{element.text}"
        else:
            yield self._action, name
            if self._action == "s3:GetObject" and not is_there(*name.split("/", 1)):
                yield "s3:ListBucket", name
        source = self._headers.get("x-amz-copy-source")
        if source:
            yield "s3:GetObject", unquote(source).lstrip("/")

    def may_list(self, bucket: str, prefix: str) -> bool:
        """Whether a statement allows a listing of the bucket with this prefix."""
        for policy in self._access_key.collect_policies():
            for statement in access_control.IAMPolicy(policy)._policy_json["Statement"]:
                if "s3:ListBucket" not in many(statement["Action"]):
                    continue
                assert statement["Effect"] == "Allow"
                # Nothing but this condition is understood here.
                ((operator, condition),) = statement["Condition"].items()
                ((key, patterns),) = condition.items()
                assert (operator, key) == ("StringLike", "s3:prefix")
                matches = any(fnmatchcase(prefix, pattern) for pattern in many(patterns))
                if ARN + bucket in many(statement["Resource"]) and matches:
                    return True
        return False


def many(one_or_more: str | list[str]) -> list[str]:
    """The values of an element of a policy."""
    return [one_or_more] if isinstance(one_or_more, str) else one_or_more


def is_there(bucket: str, key: str) -> bool:
    """Whether the bucket has the object."""
    (account,) = s3_backends
    try:
        return s3_backends[account]["aws"].get_object(bucket, key) is not None
    except S3ClientError:
        return False


def end_with_parent() -> None:
    """Ends the process when the other end of standard input is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    Request.log = Path(sys.argv[1])
    access_control.S3IAMRequest = Request
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    threading.Thread(target=end_with_parent, daemon=True).start()
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False)
    print(server.server_port, flush=True)
    server.serve_forever()
