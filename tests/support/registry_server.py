"""A schema registry's HTTP interface in this process, with answers that a test decides."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Answers as a registry would: POST registers, GET finds what `answers` holds."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, object]] = {}
        self.refusal: tuple[int, object] | None = None
        self._ids: dict[str, int] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.port = self._http.server_address[1]

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, method: str, path: str, body: str) -> tuple[int, object]:
        self.asked.append(f"{method} {path}")
        if self.refusal is not None:
            return self.refusal
        if method == "POST":
            return 200, {"id": self._ids.setdefault(body, len(self._ids) + 1)}
        return self.answers.get(path, (404, {"error_code": 40403, "message": "not found"}))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                status, value = answer(self.command, self.path.partition("?")[0], body)
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = handle_one  # noqa: N815 - names that the server looks for

            def log_message(self, *_message: object) -> None:
                """Say nothing."""

        return Handler
