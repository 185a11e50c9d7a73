"""A server in memory that speaks the XML protocol of Google Cloud Storage, as the engine's client
uses it: generations as conditions, multipart uploads, copies, listings of version 2.

A condition is checked and applied under one lock, so conditional writes are exact under races.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from overwriting_s3_for_tests import Handler, OverwritingS3

TOKEN = "token-of-the-tests"
PAGE = 100


class Gcs(OverwritingS3):
    """Objects with generations."""

    def __init__(self) -> None:
        super().__init__(GcsHandler)
        self.generations: dict[str, int] = {}
        self.next_generation = itertools.count(1_700_000_000_000_000)
        self.options = {
            "base_url": self.options["endpoint"],
            "allow_http": "true",
            "bearer_token": TOKEN,
        }

    def put_if(self, key: str, body: bytes, generation: str | None) -> int | None:
        """The new generation; None if the condition does not hold."""
        with self.lock:
            present = self.generations[key] if key in self.objects else 0
            if generation is not None and int(generation) != present:
                return None
            self.generations[key] = made = next(self.next_generation)
            self.objects[key] = (body, time.time())
            return made


class GcsHandler(Handler, BaseHTTPRequestHandler):
    store: Gcs

    def parse_request(self) -> bool:
        """Refuses requests without the token, as a bucket that is not public does."""
        if not super().parse_request():
            return False
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self.body()
        self.error(401, "AuthenticationRequired")
        return False

    def error(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>"
        self.answer(status, text.encode(), Content_Type="application/xml")

    def headers_of(self, key: str, data: bytes, stored: float) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(data).hexdigest()}"',
            "Last_Modified": formatdate(stored, usegmt=True),
            "x_goog_generation": str(self.store.generations.get(key, 0)),
        }

    def do_GET(self) -> None:
        key = self.key()
        if "list-type" in self.query:
            self.listing(PAGE)
            return
        with self.store.lock:
            found = self.store.objects.get(key)
            headers = self.headers_of(key, *found) if found else {}
        if found is None:
            self.error(404, "NoSuchKey")
            return
        self.part(found[0], headers, b"<Error><Code>InvalidRange</Code></Error>")

    def put(self, key: str, body: bytes) -> None:
        """Writes an object on the condition of the request."""
        condition = self.headers.get("x-goog-if-generation-match")
        generation = self.store.put_if(key, body, condition)
        if generation is None:
            self.error(412, "PreconditionFailed")
            return
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        if self.command == "POST":
            result = "CompleteMultipartUploadResult"
            text = f"<{result}><ETag>{etag}</ETag></{result}>".encode()
            self.answer(200, text, x_goog_generation=str(generation))
        else:
            self.answer(200, ETag=etag, x_goog_generation=str(generation))

    def do_PUT(self) -> None:
        key, data = self.key(), self.body()
        source = self.headers.get("x-goog-copy-source")
        if "partNumber" in self.query:
            parts = self.store.parts.get(self.query["uploadId"][0])
            if parts is None:
                self.error(404, "NoSuchUpload")
                return
            parts[int(self.query["partNumber"][0])] = data
            self.answer(200, ETag=f'"{hashlib.md5(data).hexdigest()}"')
        elif source is None:
            self.put(key, data)
        else:
            _, _, name = unquote(source).lstrip("/").partition("/")
            with self.store.lock:
                found = self.store.objects.get(name)
            if found is None:
                self.error(404, "NoSuchKey")
            else:
                self.put(key, found[0])

    def do_POST(self) -> None:
        key, data = self.key(), self.body()
        if "uploads" in self.query:
            self.begin_upload()
            return
        parts = self.store.parts.pop(self.query["uploadId"][0], None)
        if parts is None:
            self.error(404, "NoSuchUpload")
            return
        numbers = [int(one) for one in re.findall(r"<PartNumber>(\d+)</PartNumber>", data.decode())]
        self.put(key, b"".join(parts[number] for number in numbers))

    def do_DELETE(self) -> None:
        key = self.key()
        if "uploadId" in self.query:
            self.store.parts.pop(self.query["uploadId"][0], None)
            self.answer(204)
            return
        with self.store.lock:
            gone = self.store.objects.pop(key, None)
        if gone is None:
            self.error(404, "NoSuchKey")
        else:
            self.answer(204)
