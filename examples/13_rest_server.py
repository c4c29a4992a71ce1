"""Translation by HTTP: POST lines to any path and get their translations, with the standard library alone."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

from nmt import TranslationQueue, Translator, numbers

folder = numbers.model_dir()
vocab = str(folder / "vocab.spm")
queue = TranslationQueue(Translator(str(folder / "model.npz"), [vocab, vocab], beam_size=4), timeout=60)


class Handler(BaseHTTPRequestHandler):
    timeout = 60  # seconds without a byte from the client

    def do_POST(self) -> None:
        if "Transfer-Encoding" in self.headers or "Content-Length" not in self.headers:
            return self.send_error(411)
        try:
            size = int(self.headers["Content-Length"])
        except ValueError:
            size = -1
        if not 0 <= size <= 1 << 20:
            return self.send_error(413 if size > 0 else 400)
        lines = self.rfile.read(size).split(b"\n")
        try:
            answer = "\n".join(queue.translate(lines)).encode()
        except TimeoutError:  # some lines were not done in 60 seconds
            return self.send_error(503)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024  # connections that wait to be accepted: with the default, 5, a burst loses some


with queue, Server(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/translate"
    with urlopen(url, data=b"six\none hundred one") as response:
        found = response.read().decode()
    print(found)
    assert found == "sechs\neinhunderteins"
    server.shutdown()
