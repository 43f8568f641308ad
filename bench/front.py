"""A peer behind a tiny HTTP front: POST /embed {"inputs": ["text", ...]}, answered by a list of
vectors, on kept-alive connections. One request computes at a time, as one text has all threads.

    front.py ENGINE TEXTS.json --model DIR --cache DIR --threads N --port P [--without-amx MOST]

TEXTS.json is a list: the settings of one text at a time are tried on it before GET /readyz says yes.
"""

import json
import re
import socket
import threading

import peer

LENGTH = re.compile(rb"^content-length:\s*(\d+)\s*$", re.I | re.M)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


class Front:
    def __init__(self, engine):
        self.engine, self.lock = engine, threading.Lock()

    def serve(self, port):
        with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.connected, args=(connection,), daemon=True).start()

    def connected(self, connection):
        """Answers the requests of one connection until its client leaves."""
        data = b""
        with connection:
            while True:
                while (end := data.find(b"\r\n\r\n")) < 0:
                    part = connection.recv(1 << 16)
                    if not part:
                        return
                    data += part
                head, data = data[:end], data[end + 4 :]
                found = LENGTH.search(head)
                size = int(found[1]) if found else 0
                while len(data) < size:
                    part = connection.recv(1 << 16)
                    if not part:
                        return
                    data += part
                body, data = data[:size], data[size:]
                connection.sendall(self.answer(head, body))

    def answer(self, head, body):
        said = b"{}"
        if head.startswith(b"POST /embed "):
            with self.lock:
                rows = self.engine.encode(json.loads(body)["inputs"])
            said = json.dumps([[float(x) for x in row] for row in rows]).encode()
        return OK % (len(said), said)


def main():
    parser = peer.arguments()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    engine = peer.start(args, parallel=False)  # one text has nothing to share out
    with open(args.texts, encoding="utf-8") as f:
        tuned = peer.Peer(engine, {"one": json.load(f)}, quick=False, tune_on=8)
    setting = tuned.tune_each("one")["setting"]
    engine.use(setting)
    print(json.dumps({"setting": setting, "versions": engine.versions}), flush=True)
    Front(engine).serve(args.port)


if __name__ == "__main__":
    main()
