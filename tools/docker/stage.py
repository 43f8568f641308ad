"""Runs a build stage for real, without a container engine: its COPYs and RUNs over a copy of this
machine that is thrown away (an overlay in memory), in which only the build context is at the
stage's place. This machine stands in for the Go image, and its Rust for what is copied from the
Rust image; so it needs Go and Rust of the Dockerfile's releases."""

import os
import pathlib
import re
import subprocess
import tempfile
import time

import dockerfile
from dockerfile import Broken
from rootfs import PATH, bind, inside, run, say

MEMORY = "8g"
# What reaches the registries through this machine's network, and nothing else of its environment.
NETWORK = re.compile(r"^(PIP_.*|SSL_CERT_.*|.*_CA_BUNDLE|.*CAINFO)$")


def tool(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Machine:
    """What stands in for the images: folders here, by where they lie there; caches the same."""

    def __init__(self):
        cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
        self.copied = {"/usr/local/cargo": cargo,
                       "/usr/local/rustup": os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))}
        self.caches = {"/go/pkg/mod": tool("go", "env", "GOMODCACHE"),
                       "/root/.cache/go-build": tool("go", "env", "GOCACHE"),
                       "/usr/local/cargo/registry": f"{cargo}/registry"}
        self.goroot = tool("go", "env", "GOROOT")
        self.go = tool("go", "env", "GOVERSION").removeprefix("go")
        self.rust = tool("rustc", "--version").split()[1]
        self.env = {"PATH": f"/go/bin:/usr/local/go/bin:{PATH}", "GOPATH": "/go", "GOTOOLCHAIN": "local"}
        self.env.update({name: value for name, value in os.environ.items() if NETWORK.match(name)})

    def is_for(self, stages):
        for stage in stages:
            name, _, tag = stage.base.partition(":")
            found = {"golang": self.go, "rust": self.rust}.get(name)
            if found and not tag.startswith(found + "-"):
                say(f"FROM {stage.base}: this machine's {found} stands in for it")


def build(stages, name, context, repository, arguments):
    """Runs the stage of that name; returns the root it ends with."""
    stage = next(s for s in stages if s.name == name)
    machine = Machine()
    machine.is_for(stages)
    memory = pathlib.Path(tempfile.mkdtemp())
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEMORY},mode=755", "tmpfs", memory], check=True)
    for folder in ("upper", "work", "root", "empty"):
        (memory / folder).mkdir()
    root = memory / "root"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work", root], check=True)
    # A step that reached for the repository, or for what an earlier build left, would work here and
    # nowhere else.
    bind(memory / "empty", inside(root, str(repository)))
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", root / "tmp"], check=True)
    if machine.goroot != "/usr/local/go":
        bind(pathlib.Path(machine.goroot), root / "usr/local/go")

    env, variables, workdir = dict(machine.env), {}, "/"
    for at in stage.instructions:
        text = dockerfile.expand(at.text, {**variables, **env})
        flags = dict(at.flags)
        if at.word == "COPY" and "from" in flags:
            for source in text.split()[:-1]:
                if source not in machine.copied:
                    raise Broken(
                        f"line {at.line}: COPY --from={flags['from']} {source}: nothing here stands in for it")
                bind(pathlib.Path(machine.copied[source]), inside(root, text.split()[-1]))
        elif at.word == "COPY":
            copy(text, inside(root, workdir), context)
        elif at.word == "RUN":
            started = time.monotonic()
            run(root, at.text, {**variables, **env}, workdir, caches(at, machine))
            say(f"{time.monotonic() - started:4.0f} s  RUN {at.text}")
        elif at.word == "ARG":
            key, _, default = text.partition("=")
            variables[key] = arguments.get(key, default)
        elif at.word == "ENV":
            env.update(dockerfile.pairs(at, {**variables, **env}))
        elif at.word == "WORKDIR":
            workdir = os.path.join(workdir, text)
            inside(root, workdir).mkdir(parents=True)
        else:
            raise Broken(f"line {at.line}: this check does not run {at.word} in a build stage")
    return root


def copy(text, folder, context):
    *sources, target = text.split()
    for source in sources:
        place = folder / target
        context.copy(source, place / os.path.basename(source) if target.endswith("/") else place)


def caches(at, machine):
    """{place in the stage: folder here} of a RUN's cache mounts."""
    found = {}
    for name, value in at.flags:
        options = dict(word.partition("=")[::2] for word in value.split(","))
        if name != "mount" or options.get("type") != "cache":
            raise Broken(f"line {at.line}: this check does not read --{name}={value}")
        folder = machine.caches.get(options["target"])
        if folder is None:
            raise Broken(f"line {at.line}: nothing here stands in for the cache {options['target']}")
        os.makedirs(folder, exist_ok=True)
        found[options["target"]] = folder
    return found
