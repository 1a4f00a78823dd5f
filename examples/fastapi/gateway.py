"""Stands for the service that the examples call: answers `{}` to every POST, and prints it.

python gateway.py
"""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(self.path, self.headers["Idempotency-Key"], body.decode(), flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")


ThreadingHTTPServer(("127.0.0.1", 8900), Handler).serve_forever()
