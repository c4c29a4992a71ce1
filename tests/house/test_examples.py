"""Every example runs; its own assertions are the test."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.places import ROOT

pytestmark = pytest.mark.optimized  # as users run them

SLOW = "08_bridges 09_train_numbers 10_own_loop 11_digits 12_characters 13_rest_server".split()
SLOWER = ["14_distill_numbers", "15_readme_pictures"]
MARKS = dict.fromkeys(SLOW, pytest.mark.slow) | dict.fromkeys(SLOWER, pytest.mark.thorough)
EXAMPLES = [
    pytest.param(path, marks=MARKS.get(path.stem, ()), id=path.stem)
    for path in sorted((ROOT / "examples").glob("*.py"))
]
# Arguments that make an example take seconds, not minutes.
ARGUMENTS = {
    "09_train_numbers": ["--after", "3u", "--lines", "128"],
    "14_distill_numbers": ["--lines", "200", "--after", "3u", "--tune-after", "2u", "--heldout", "6"],
    "15_readme_pictures": ["--after", "20u"],
}


@pytest.mark.parametrize("path", EXAMPLES)
def test_example(path: Path) -> None:
    command = [sys.executable, str(path), *ARGUMENTS.get(path.stem, [])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=path.parent.parent)
    assert run.returncode == 0, run.stderr


def test_the_rest_server_answers_requests_whose_size_it_cannot_know() -> None:
    tree = ast.parse((ROOT / "examples" / "13_rest_server.py").read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    queue = SimpleNamespace(translate=lambda lines: [line.decode().upper() for line in lines])
    names: dict[str, Any] = {cls.__name__: cls for cls in (BaseHTTPRequestHandler, ThreadingHTTPServer)}
    names["queue"] = queue
    exec(compile(tree, "13_rest_server.py", "exec"), names)
    handler = type("Quiet", (names["Handler"],), {"log_message": lambda *_: None})
    expected = {
        "Content-Length: 6\r\n\r\none\ntw": 200,
        "\r\n": 411,
        "Transfer-Encoding: chunked\r\n\r\n": 411,
        "Content-Length: -1\r\n\r\n": 400,
        "Content-Length: abc\r\n\r\n": 400,
        "Content-Length: 9999999\r\n\r\n": 413,
    }
    with names["Server"](("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        for rest, code in expected.items():
            with socket.create_connection(server.server_address[:2], timeout=5) as client:
                client.sendall(f"POST / HTTP/1.1\r\n{rest}".encode())
                answer = b"".join(iter(lambda: client.recv(4096), b"")).decode()
            assert answer.startswith(f"HTTP/1.0 {code} "), rest
            assert code != 200 or answer.endswith("\r\n\r\nONE\nTW")
        server.shutdown()
    assert handler.timeout == 60
