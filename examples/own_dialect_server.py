"""The invented server of own_dialect.py: it repeats the last message. `python examples/own_dialect_server.py` runs it.

It imports nothing of the library, so it is an independent check. The model `parrot-hoarse` answers every request with
an
error.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOARSE = {"trouble": "I am hoarse", "again_in": 2}


class Parrot(BaseHTTPRequestHandler):
    """One connection. The end of the connection ends the answer."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["model"] == "parrot-hoarse":
            self.answer(429, "application/json", [json.dumps(HOARSE)])
            return
        words = asked["turns"][-1]["words"] + "!"
        first = {"talk": "t-1", "model": asked["model"]}
        last = {"why": "finished", "heard": len(asked["turns"]), "spoken": len(words)}
        if not asked["live"]:
            self.answer(200, "application/json", [json.dumps({**first, "words": words, **last})])
            return
        middle = [("words", {"words": words[place : place + 3]}) for place in range(0, len(words), 3)]
        events = [("begin", first), *middle, ("end", last)]
        self.answer(200, "text/event-stream", [f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events])

    def answer(self, status: int, kind: str, pieces: list[str]) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def open_server(port: int = 0) -> Generator[str, None, None]:
    """Run a server on loopback in a thread. Yields its base URL."""
    with ThreadingHTTPServer(("127.0.0.1", port), Parrot) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    with open_server(9000) as base_url:
        print(f"listens at {base_url}; Enter ends it")
        input()
