"""One engine in a process of its own, driven line by line, so that several can be timed in turns.

    peer.py ENGINE TEXTS.json --model DIR --cache DIR --threads N [--without-amx MOST] [--quick]
            [--engines MODULE]

TEXTS.json holds {"name": ["text", ...]}. Prints {"ready": true, "versions": {...}}, then answers
each line of input with one line of JSON:

    tune NAME          tries the settings worth trying, keeps the fastest      {"setting": {...}}
    tune-each NAME     the same for one text at a time                         {"setting": {...}}
    go NAME TIMES      encodes all texts of NAME that many times               {"seconds": s}
    each NAME          encodes them one by one                                 {"each": [s, ...]}
    vectors NAME FILE  writes the vectors of NAME as float32 to a .npy file    {"written": n}
    answers NAME       what an extractor finds in the items of NAME            {"answers": [...]}
"""

import argparse
import importlib
import json
import os
import sys
import time

import limit

TRIAL_SECONDS = 0.3  # measured of each setting at least


def timed(work, *args):
    start = time.perf_counter()
    work(*args)
    return time.perf_counter() - start


class Peer:
    def __init__(self, engine, sets, quick, tune_on):
        self.engine, self.sets, self.quick, self.settings = engine, sets, quick, {}
        self.tune_on = tune_on

    def search(self, choices, work, texts):
        """The best value of one setting after the other, starting from the first value of each."""
        setting = {key: values[0] for key, values in choices.items()}
        if not self.quick:
            for key, values in choices.items():
                seconds = {value: self.trial(setting | {key: value}, work, texts) for value in values}
                setting[key] = min(seconds, key=seconds.get)
        self.trial(setting, work, texts[:8])  # what follows is measured: nothing is compiled then
        return setting

    def trial(self, setting, work, texts):
        """Shortest of some runs, after an unmeasured one over a part: first shapes cost more."""
        self.engine.use(setting)
        work(texts[::4])
        runs, until = [timed(work, texts)], time.perf_counter() + TRIAL_SECONDS
        while time.perf_counter() < until and len(runs) < 20:
            runs.append(timed(work, texts))
        return min(runs)

    def tune(self, name):
        texts = self.sets[name]
        if len(texts) == 1:  # one long text: its trials would outlast the race
            self.settings[name] = {k: v[0] for k, v in self.engine.choices_one.items()}
            self.trial(self.settings[name], self.engine.encode, texts)
            return {"setting": self.settings[name]}
        self.settings[name] = self.search(self.engine.choices, self.engine.encode,
                                          texts[: max(self.tune_on, len(texts) // 4)])
        return {"setting": self.settings[name]}

    def one_by_one(self, texts):
        return [timed(self.engine.encode, [text]) for text in texts]

    def tune_each(self, name):
        self.settings["each", name] = self.search(self.engine.choices_one, self.one_by_one,
                                                  self.sets[name][:8])
        return {"setting": self.settings["each", name]}

    def go(self, name, times):
        self.engine.use(self.settings[name])
        return {"seconds": sum(timed(self.engine.encode, self.sets[name]) for _ in range(int(times)))}

    def each(self, name):
        self.engine.use(self.settings["each", name])
        return {"each": self.one_by_one(self.sets[name])}

    def vectors(self, name, path):
        import numpy as np

        self.engine.use(next(iter(self.settings.values())))
        rows = np.asarray(self.engine.encode(self.sets[name]), np.float32)
        np.save(path, rows)
        return {"written": len(rows)}

    def answers(self, name):
        self.engine.use(next(iter(self.settings.values())))
        return {"answers": self.engine.answers(self.sets[name])}


def arguments():
    """A parser of what every process of an engine is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("texts")
    parser.add_argument("--model", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--without-amx", metavar="MOST", help="and the most that oneDNN may use then")
    return parser


def start(args, module="engines", parallel=True):
    """The engine that args name, within args.threads and without AMX where that is asked for. No
    library of an engine may have been imported before. parallel: its tokenizer has threads, too."""
    if args.without_amx:
        limit.without_amx(args.without_amx)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    os.environ |= {"TOKENIZERS_PARALLELISM": "true" if parallel else "false", "HF_HUB_OFFLINE": "1"}
    kind, precision = importlib.import_module(module).ENGINES[args.engine]
    bf16 = args.without_amx in (None, "AVX512_CORE_BF16")  # whether it may multiply it, if the CPU can
    return kind(precision, args.model, args.cache, args.threads, bf16)


def main():
    parser = arguments()
    parser.add_argument("--quick", action="store_true", help="take the most promising settings untried")
    parser.add_argument("--engines", choices=("engines", "archengines", "extractengines"), default="engines",
                        help="the module that has the engine")
    parser.add_argument("--tune-on", type=int, default=64,
                        help="texts that settings are tried on; a quarter of a larger set")
    args = parser.parse_args()

    # Standard output carries the protocol; whatever libraries print goes to standard error.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    engine = start(args, args.engines)
    with open(args.texts, encoding="utf-8") as f:
        sets = json.load(f)
    peer = Peer(engine, sets, args.quick, args.tune_on)
    print(json.dumps({"ready": True, "versions": peer.engine.versions}), file=out)
    for line in sys.stdin:
        command, *rest = line.split(maxsplit=2)
        answer = {
            "tune": peer.tune,
            "tune-each": peer.tune_each,
            "go": peer.go,
            "each": peer.each,
            "vectors": peer.vectors,
            "answers": peer.answers,
        }[command](*(r.strip() for r in rest))
        print(json.dumps(answer), file=out)


if __name__ == "__main__":
    main()
