"""Serves S3 from memory on a loopback port until standard input closes.

One request at a time: moto checks a condition and acts on it without a lock, so only a single
thread makes its conditional writes exact. Prints the port.
"""

import logging
import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def end_with_parent() -> None:
    """Ends the process when the other end of standard input is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


logging.getLogger("werkzeug").setLevel(logging.ERROR)
threading.Thread(target=end_with_parent, daemon=True).start()
application = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, application, threaded=False)
print(server.server_port, flush=True)
server.serve_forever()
