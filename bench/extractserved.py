"""The part of bench-extract over HTTP: our server beside sie-server 0.10.1 as published, with the same
weights, asked for the same items by the same clients."""

import concurrent.futures
import http.client
import json
import statistics
import time

from racers import Failed
from served import Server, clean_env

CLIENTS, PER_REQUEST = 4, 4
ROUNDS = 3
PUBLISHED = "sie-server 0.10.1"
# Adapters of the published server, by package.
ADAPTERS = {"gliner": "gliner:GLiNERAdapter", "gliclass": "gliclass:GLiClassAdapter",
            "transformers": "nli_classification:NLIClassificationAdapter"}
ENTRY = """\
sie_id: {model}
weights_path: {weights}
inputs: {{text: true}}
tasks: {{extract: {{}}}}
max_sequence_length: {limit}
profiles:
  default:
    max_batch_tokens: 16384
    compute_precision: float32
    adapter_path: sie_server.adapters.{adapter}
    adapter_options: {{runtime: {{}}}}
"""


class PublishedServer(Server):
    def _weights(self):
        return 0.0


class Served:
    def __init__(self, shape, model, out):
        self.shape, self.model, self.out = shape, model, out

    def race(self, published):
        """Items a second of both, round by round, on the first set with items: or why there are none."""
        shape, threads = self.shape, self.shape.args.threads
        s = next((s for s in shape.sets if s.startswith("labels")), None)
        if s is None:
            return {"failed": "no set of items"}
        catalogue = self.out / f"{shape.name}-published"
        catalogue.mkdir(exist_ok=True)
        adapter = ADAPTERS[shape.row["package"]]
        if "labels" in shape.row:
            adapter = "gliner_bi:GLiNERBiEncoderAdapter"
        (catalogue / "model.yaml").write_text(ENTRY.format(
            model=self.model, weights=shape.folder.resolve(), limit=shape.row["limit"], adapter=adapter))
        env = clean_env()
        commands = {
            "sie-fp32": (Server, [str(shape.args.server), "serve", "-m", f"{self.model}={shape.folder}",
                                  "--threads", str(threads), "--precision", "fp32", "--no-hf-fallback"], env),
            PUBLISHED: (PublishedServer, [str(published), "serve", "-d", "cpu", "--models-dir",
                                          str(catalogue)],
                        env | {"HF_HUB_OFFLINE": "1", "SIE_TELEMETRY_DISABLED": "1"}),
        }
        servers, told = {}, {"set": s, "runs": {}}
        try:
            for name, (kind, command, settings) in commands.items():
                servers[name] = kind(command, self.model, settings,
                                     self.out / f"{shape.name}-http-{name.split()[0]}.log", ready_within=300)
            for _ in range(ROUNDS):
                for name, server in servers.items():
                    told["runs"].setdefault(name, []).append(self.turn(server, s))
        except Failed as err:
            told["failed"] = str(err)
        finally:
            for server in servers.values():
                server.close()
        if told["runs"]:
            shape.say(f"{shape.name}, {s} over HTTP: " + ", ".join(
                f"{n} {statistics.median(v):,.2f}" for n, v in told["runs"].items()))
        return told

    def turn(self, server, s):
        """Items a second of a pass over the set."""
        texts = json.loads(self.shape.files[s].read_text())
        params = json.loads(self.shape.params[s].read_text())
        bodies = [json.dumps({"items": [{"text": t} for t in texts[i:i + PER_REQUEST]], "params": params})
                  for i in range(0, len(texts), PER_REQUEST)]
        with server.turn(), concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            self.ask(server, bodies[0])  # unmeasured: the first request compiles and warms
            began = time.perf_counter()
            list(pool.map(lambda body: self.ask(server, body), bodies))
            return len(texts) / (time.perf_counter() - began)

    def ask(self, server, body):
        c = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=600)
        try:
            c.request("POST", f"/v1/extract/{self.model}", body,
                      {"Content-Type": "application/json", "Accept": "application/json"})
            r = c.getresponse()
            said = r.read()
        finally:
            c.close()
        if r.status != 200 or any(i.get("error") for i in json.loads(said)["items"]):
            raise Failed(f"extract: {r.status} {said[:300].decode(errors='replace')}")
