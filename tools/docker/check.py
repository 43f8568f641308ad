"""Checks the images that the Dockerfiles describe, without a container engine. Called by check.sh,
in namespaces.

For each Dockerfile the last stage is built into a folder (rootfs.py) with the binary that `make`
left, the rules of rules.py are asked of it, and it is started as an engine would start it
(container.py): the default command with a new volume; then read-only, as another user, with `serve
-m …`. It must give MiniLM's vector, answer its HEALTHCHECK while it is up and not after, and end
with 0 on its stop signal."""

import argparse
import functools
import json
import math
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import container
import dockerfile
import gpu
import rootfs
import rules
import stage
from container import Container, wait_for
from dockerfile import Broken

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# Where each Dockerfile's binary comes from on this machine.
MADE_BY = {"Dockerfile": "make build", "Dockerfile.cuda": "make build-cuda",
           **dict.fromkeys(("Dockerfile.gateway", "Dockerfile.config", "Dockerfile.sidecar"), "make pure")}
# Files of the build image that are this machine's as well.
MACHINES = ("/etc/ssl/certs/ca-certificates.crt",)
# The programs in images from scratch: what they need to start where nothing else runs, and the
# address that answers all the same.
PROGRAMS = {"sie-gateway": ({}, 8080, "/healthz"), "sie-config": ({}, 8080, "/readyz"),
            "sie-sidecar": ({"SIE_NATS_URL": "nats://127.0.0.1:4222", "SIE_POOL": "default",
                             "SIE_MACHINE_PROFILE": "cpu", "SIE_BUNDLE": "default"}, 9095, "/healthz")}
say = rootfs.say


class Absent(Exception):
    """A file of the build stage that has not been built here."""


# ---- the model and its vectors
# ---------------------------------------------------------------------------------------


def golden():
    """Texts and what sentence-transformers made of them."""
    folder = REPOSITORY / "testdata/golden/minilm-short"
    raw = (folder / "golden.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])["vectors"]
    dim, start = header["shape"][1], 8 + size + header["data_offsets"][0]
    texts = [json.loads(line) for line in (folder / "texts.jsonl").read_text().splitlines()]
    picked = (0, len(texts) // 2, len(texts) - 1)
    return [texts[i] for i in picked], [struct.unpack_from(f"<{dim}f", raw, start + 4 * dim * i)
                                        for i in picked]


def put_model(volume, uid, gid):
    """The model into a volume in the layout of the Hugging Face cache, as another tool would leave
    it there."""
    repository = volume / "hub" / ("models--" + MODEL.replace("/", "--"))
    entry = (REPOSITORY / "catalog/models" / (MODEL.replace("/", "__") + ".yaml")).read_text()
    commit = re.search(r"^hf_revision: (\w+)$", entry, re.M).group(1)
    shutil.copytree(REPOSITORY / "build/models/all-MiniLM-L6-v2", repository / "snapshots" / commit,
                    ignore=shutil.ignore_patterns(".*", "README.md"))
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    subprocess.run(["chown", "-R", f"{uid}:{gid}", str(volume / "hub")], check=True)


def embed(port, texts):
    body = json.dumps({"model": MODEL, "input": texts}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/embeddings", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
        return [row["embedding"] for row in json.load(answer)["data"]]


def right_vectors(port):
    """A condition for wait_for: the vectors are sentence-transformers'. A cold model is asked for
    again, as clients do."""
    texts, wanted = golden()
    try:
        found = embed(port, texts)
    except urllib.error.HTTPError as e:
        text = e.read(500).decode(errors="replace")
        if e.code == 503:
            return False, text
        raise Broken(f"embeddings: {e.code} {text}") from None
    except OSError as e:
        return False, str(e)
    for text, a, b in zip(texts, found, wanted, strict=True):
        cosine = sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(
            sum(x * x for x in a) * sum(y * y for y in b))
        if not cosine > 0.999:
            raise Broken(f"the vector of {text!r} has cosine {cosine:.5f} with sentence-transformers'")
    return True, ""


# ---- running
# ---------------------------------------------------------------------------------------------------------


def serve(c, log, health, patience):
    """Starts c and sees it through: ready, right, healthy, its stop, and not healthy after."""
    port = int(c.image.ports[0].partition("/")[0])
    flags, probe = health
    limit = 5 + int(flags.get("timeout", "30s").rstrip("s"))
    status, _ = c.run(*probe, limit=limit)
    if status == 0:
        raise Broken(f"HEALTHCHECK {' '.join(probe)} answers 0 where no server runs")
    c.start(log)

    def ready():
        if not c.alive():
            raise Broken(f"{' '.join(c.words)} ended with {c.process.returncode}:\n{c.said()[-1500:]}")
        status, text = c.run(*probe, limit=limit)
        return status == 0, text.strip()
    wait_for(ready, patience, f"HEALTHCHECK {' '.join(probe)} of a server that was just started")
    wait_for(lambda: right_vectors(port), patience, "the vectors of MiniLM")
    status = c.stop(30)
    if status != 0:
        raise Broken(f"{c.image.stop_signal} ended process 1 with {status}, want 0:\n{c.said()[-1500:]}")
    status, _ = c.run(*probe, limit=limit)
    if status == 0:
        raise Broken(f"HEALTHCHECK {' '.join(probe)} answers 0 after the server ended")


def first_run(image, volume, log, patience):
    """docker run IMAGE, with a new volume."""
    path = image.env["HF_HOME"]
    with Container(image, volumes={path: container.fresh_volume(image, path, volume)}) as c:
        status, text = c.run("/bin/sh", "-c",
                             f"touch {path}/written && rm {path}/written && ! test -w /usr/local/bin && pwd")
        if status or text.strip() != image.workdir:
            raise Broken(
                f"the image's user cannot write to {path}, or can write to /usr/local/bin: {text.strip()}")
        put_model(volume, c.uid, c.gid)
        serve(c, log, image.health, patience)


def second_run(image, volume, log, patience):
    """docker run --read-only --user 4321:4321 -v CACHE:…:ro IMAGE serve -m MODEL --preload MODEL"""
    words = ["serve", "-m", MODEL, "--preload", MODEL]
    subprocess.run(["mount", "--bind", "-o", "ro", str(volume), str(volume)], check=True)
    try:
        with Container(image, words, user="4321:4321", volumes={image.env["HF_HOME"]: volume},
                       read_only=True) as c:
            serve(c, log, image.health, patience)
    finally:
        subprocess.run(["umount", str(volume)], check=True)


def answers(port, path):
    """A condition for wait_for: a page answers 200."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status == 200, ""
    except OSError as e:
        return False, str(e)


def program_run(image, program, user, log, patience):
    """docker run --read-only IMAGE, alone on its network."""
    env, port, path = PROGRAMS[program]
    if str(port) not in image.ports:
        raise Broken(f"EXPOSE {' '.join(image.ports)}: {program} answers on {port}")
    with Container(image, user=user, read_only=True, env=env) as c:
        if image.health:
            flags, probe = image.health
            limit = 5 + int(flags.get("timeout", "30s").rstrip("s"))
            if c.run(*probe, limit=limit)[0] == 0:
                raise Broken(f"HEALTHCHECK {' '.join(probe)} answers 0 where no {program} runs")
        c.start(log)

        def up():
            if not c.alive():
                raise Broken(f"{' '.join(c.words)} ended with {c.process.returncode}:\n{c.said()[-1500:]}")
            return answers(port, path)
        wait_for(up, patience, f"{path} of {program}")
        if image.health and path == "/readyz":
            status, text = c.run(*probe, limit=limit)
            if status:
                raise Broken(f"HEALTHCHECK {' '.join(probe)} answers {status} of a ready {program}: {text}")
        status = c.stop(30)
        if status != 0:
            raise Broken(f"{image.stop_signal} ended process 1 with {status}, want 0:\n{c.said()[-1500:]}")


# ---- one Dockerfile
# --------------------------------------------------------------------------------------------------


def artefact(stages, made_by, built, stage, path):
    """The file at path of a build stage: in the root it was built in, else what `make` left at the
    same place of the repository. None is an empty folder, which a RUN of the stage makes."""
    if path in MACHINES:
        return pathlib.Path(path)
    if any(at.word == "RUN" and at.text == f"install -d {path}"
           for s in stages if s.name == stage for at in s.instructions):
        return None
    if built:
        if not rootfs.inside(built, path).is_file():
            raise Broken(f"COPY --from={stage} {path}: the build leaves no such file")
        return rootfs.inside(built, path)
    place = next(
        (at.text for s in stages if s.name == stage for at in s.instructions if at.word == "WORKDIR"), None)
    if place is None or not path.startswith(place + "/"):
        raise Broken(f"COPY --from={stage} {path}: no such stage, or not below its WORKDIR {place}")
    file = REPOSITORY / path.removeprefix(place + "/")
    if not file.is_file():
        if made_by and file.parent.name in ("bin", "cuda", "sbom"):
            raise Absent(f"{file.relative_to(REPOSITORY)} is not there: {made_by}")
        raise Broken(f"COPY --from={stage} {path}: the build leaves no such file")
    return file


def check(file, cache, scratch, arguments, patience):
    started = time.monotonic()
    stages = dockerfile.parse(file.read_text())
    ignore = dockerfile.Ignore((REPOSITORY / ".dockerignore").read_text())
    context = rootfs.Context(REPOSITORY, ignore)
    rules.together([(rules.pinned, [stages]),
                    (rules.platforms, [stages]),
                    (rules.go_version, [stages, (REPOSITORY / "go.mod").read_text()]),
                    (rules.sources, [stages, context, (REPOSITORY / "Makefile").read_text()]),
                    (rules.kept_out, [ignore])])
    built = None
    if arguments is not None:
        built = stage.build(stages, "build", context, REPOSITORY, arguments)
        yield f"the build stage ran in {time.monotonic() - started:.0f} s"
    image = rootfs.build(stages, context, functools.partial(artefact, stages, MADE_BY.get(file.name), built),
                         cache, scratch / "root", {"COMMIT": "0123456789ab"})
    if stages[-1].base == "scratch":
        yield from check_program(image, scratch, patience)
        return
    rules.together([(rules.configuration, [image, file.name == "Dockerfile.cuda"]), (rules.volumes, [image])])
    size, parts = rules.contents(image), rules.papers(image, "sie-server")
    with Container(image) as c:
        linked = rules.libraries(c, rules.program(image))
    yield f"{len(context.files)} files of context; image {size:.0f} MB of {parts} parts; links {' '.join(linked)}"
    container.leave_network()
    if file.name == "Dockerfile.cuda":
        yield gpu.check(image, REPOSITORY / "build/standin/libcuda.so.1")
    first_run(image, scratch / "volume", scratch / "first.log", patience)
    second_run(image, scratch / "volume", scratch / "second.log", patience)
    yield f"served MiniLM twice, healthy and stopped as it should, in {time.monotonic() - started:.0f} s"


def check_program(image, scratch, patience):
    """The rest of check for an image from scratch."""
    rules.together([(rules.common, [image]), (rules.volumes, [image])])
    path = rules.program(image)
    program = pathlib.PurePath(path).name
    rules.bare(image, program)
    size, parts = rules.contents(image), rules.papers(image, program)
    yield f"image {size:.0f} MB of {parts} parts, static"
    container.leave_network()
    for user in (None, "4321:4321"):
        program_run(image, program, user, scratch / "run.log", patience)
    yield "started read-only as two users, answered and stopped as it should"


def main():
    # Engines start process 1 with the default for every signal, whatever started this (nohup ignores SIGHUP).
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--need", action="append", default=[], metavar="FILE",
                        help="fail where its binary is not built")
    parser.add_argument("--build", nargs="*", metavar="NAME=VALUE",
                        help="run the build stage, too, with these arguments")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS",
                        help="for a server to be ready, and to load the model")
    options = parser.parse_args()
    arguments = None if options.build is None else dict(word.partition("=")[::2] for word in options.build)
    cache = REPOSITORY / "build/docker"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # In memory, and gone with the mount namespace.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g,mode=755", "tmpfs", scratch], check=True)
        (pathlib.Path(scratch) / "root").mkdir()
        try:
            for line in check(options.file, cache, pathlib.Path(scratch), arguments, options.patience):
                print(f"   {options.file.name}: {line}", flush=True)
        except Absent as e:
            if options.file.name not in options.need:
                print(f"   {options.file.name}: ONLY ITS TEXT WAS CHECKED: {e}")
                return
            sys.exit(f"   {options.file.name}: FAILED: {e}")
        except Broken as e:
            sys.exit(f"   {options.file.name}: FAILED: {e}")
        finally:
            subprocess.run(["umount", "-R", "-l", scratch], check=True)


if __name__ == "__main__":
    main()
