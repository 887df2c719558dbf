"""An S3 server by moto on a free port of loopback; says its address, and ends when its input does."""

from __future__ import annotations

import logging
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def main() -> None:
    """Serve until standard input is closed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)

    def end_with_input() -> None:
        sys.stdin.read()
        server.shutdown()

    threading.Thread(target=end_with_input, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
