"""An S3 server in memory that ignores the condition of a create: every PUT overwrites.

It serves the requests of the engine: GET with ranges, HEAD, PUT, listings (version 2), DELETE, bulk
deletes and multipart uploads.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class QuietServer(ThreadingHTTPServer):
    """A server to which clients may end their connections, as killed processes do."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class OverwritingS3:
    def __init__(self, handler: type[Handler] | None = None) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.uploads = itertools.count()
        self.lock = threading.Lock()
        bound = type("Handler", (handler or Handler,), {"store": self})
        self.server = QuietServer(("127.0.0.1", 0), bound)
        self.options = {
            "endpoint": f"http://127.0.0.1:{self.server.server_port}",
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def put(self, key: str, body: bytes) -> None:
        with self.lock:
            self.objects[key] = (body, time.time())


class Handler(BaseHTTPRequestHandler):
    store: OverwritingS3
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: Any) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.query: dict[str, list[str]] = {}

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def xml(self, body: str) -> None:
        text = f'<?xml version="1.0" encoding="UTF-8"?>{body}'
        self.answer(200, text.encode(), Content_Type="application/xml")

    def key(self) -> str:
        """The key, and the query as a side effect."""
        url = urlsplit(self.path)
        self.query = parse_qs(url.query, keep_blank_values=True)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        return key

    def body(self) -> bytes:
        length = int(self.headers.get("Content-Length", 0))
        return self.rfile.read(length)

    def do_GET(self) -> None:
        key = self.key()
        if "list-type" in self.query:
            self.listing()
            return
        with self.store.lock:
            found = self.store.objects.get(key)
        if found is None:
            text = "<Error><Code>NoSuchKey</Code></Error>"
            self.answer(404, text.encode(), Content_Type="application/xml")
            return
        data, stored = found
        headers = {
            "ETag": f'"{hashlib.md5(data).hexdigest()}"',
            "Last_Modified": formatdate(stored, usegmt=True),
        }
        self.part(data, headers)

    def part(self, data: bytes, headers: dict[str, str], past_end: bytes = b"") -> None:
        """The requested range of an object, or all of it."""
        ranged = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if ranged is None:
            self.answer(200, data, **headers)
            return
        first, last = int(ranged[1]), min(int(ranged[2] or len(data) - 1), len(data) - 1)
        if first >= len(data):
            self.answer(416, past_end)
            return
        headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
        self.answer(206, data[first : last + 1], **headers)

    def do_HEAD(self) -> None:
        self.do_GET()

    def listing(self, page: int = 1 << 30) -> None:
        prefix = self.query.get("prefix", [""])[0]
        after = self.query.get("start-after", [""])[0]
        after = max(after, self.query.get("continuation-token", [""])[0])
        with self.store.lock:
            keys = sorted(key for key in self.store.objects if key.startswith(prefix))
            found = [(key, *self.store.objects[key]) for key in keys if key > after]
        rest, found = found[page:], found[:page]
        lines = []
        for key, data, stored in found:
            moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored))
            lines.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{moment}</LastModified>"
                f"<ETag>x</ETag><Size>{len(data)}</Size></Contents>"
            )
        last = found[-1][0] if found else ""
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        more = f"<IsTruncated>{'true' if rest else 'false'}</IsTruncated>{token if rest else ''}"
        self.xml(f"<ListBucketResult>{more}{''.join(lines)}</ListBucketResult>")

    def do_PUT(self) -> None:
        key, data = self.key(), self.body()
        if "partNumber" in self.query:
            parts = self.store.parts[self.query["uploadId"][0]]
            parts[int(self.query["partNumber"][0])] = data
        elif "x-amz-copy-source" in self.headers:
            self.copy(key)
            return
        else:
            self.store.put(key, data)
        self.answer(200, ETag=f'"{hashlib.md5(data).hexdigest()}"')

    def copy(self, key: str) -> None:
        _, _, name = unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")
        with self.store.lock:
            found = self.store.objects.get(name)
        if found is None:
            text = "<Error><Code>NoSuchKey</Code></Error>"
            self.answer(404, text.encode(), Content_Type="application/xml")
            return
        self.store.put(key, found[0])
        self.xml("<CopyObjectResult><ETag>x</ETag></CopyObjectResult>")

    def do_POST(self) -> None:
        key, data = self.key(), self.body()
        if "delete" in self.query:
            keys = [unescape(one) for one in re.findall(r"<Key>(.*?)</Key>", data.decode())]
            with self.store.lock:
                for one in keys:
                    self.store.objects.pop(one, None)
            self.xml("<DeleteResult></DeleteResult>")
        elif "uploads" in self.query:
            self.begin_upload()
        else:
            parts = self.store.parts.pop(self.query["uploadId"][0])
            self.store.put(key, b"".join(part for _, part in sorted(parts.items())))
            result = "CompleteMultipartUploadResult"
            self.xml(f"<{result}><ETag>x</ETag></{result}>")

    def begin_upload(self) -> None:
        with self.store.lock:
            upload = str(next(self.store.uploads))
            self.store.parts[upload] = {}
        self.xml(
            f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
            "</InitiateMultipartUploadResult>"
        )

    def do_DELETE(self) -> None:
        key = self.key()
        with self.store.lock:
            self.store.objects.pop(key, None)
        self.answer(204)
