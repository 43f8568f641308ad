"""Builds the last stage of a Dockerfile into a folder, without a container engine: FROM from
Debian's packages, RUN in a chroot, COPY from the repository and from what `make` left. Runs as root
of its own mount namespace (check.sh)."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import dockerfile
from dockerfile import Broken

SUITES = {"debian:12-slim": "bookworm"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LAYERS, QUICK = 2, 2  # layers kept, of 80 MB each; seconds within which one is made again rather
# What Docker hands on from the one who builds.
PROXIES = {name: value for name, value in os.environ.items() if name.lower() in
           ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")}


def say(text):
    print(f"   {text}", file=sys.stderr, flush=True)


class Context:
    """The files `docker build .` would send."""

    def __init__(self, repository, ignore):
        self.repository, self.ignore, self.files = repository, ignore, []
        for folder, folders, files in os.walk(repository):
            inside = os.path.relpath(folder, repository)
            name = (lambda entry: entry) if inside == "." else (lambda entry: f"{inside}/{entry}")
            folders[:] = [entry for entry in folders if not ignore.ignores(name(entry))]
            self.files += [name(entry) for entry in files if not ignore.ignores(name(entry))]

    def holds(self, path):
        path = os.path.normpath(path)
        return path == "." or any(file == path or file.startswith(path + "/") for file in self.files)

    def copy(self, path, target):
        """path of the context to target, as COPY does: a file by its name, a folder's contents."""
        path = os.path.normpath(path)
        if not self.holds(path):
            raise Broken(
                f"COPY {path}: not in the build context; is it in the repository, and does .dockerignore keep it out?")
        below = "" if path == "." else path + "/"
        for file in self.files:
            if file == path or file.startswith(below):
                place = target / os.path.relpath(file, path) if file != path else target
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.repository / file, place, follow_symlinks=False)


class Image:
    """A root folder and what an engine would remember about it."""

    def __init__(self, root):
        self.root = root
        self.env, self.labels = {"PATH": PATH}, {}
        self.user, self.workdir, self.stop_signal = "", "/", "SIGTERM"
        self.volumes, self.ports, self.entrypoint, self.cmd = [], [], [], []
        self.health = None  # (flags, words)


def tar(*words):
    subprocess.run(["tar", "--numeric-owner", *map(str, words)], check=True)


def begin(name, cache, root):
    """The base image in root; returns what tells one of its makings from another."""
    if name == "scratch":
        return "scratch"
    start = base(name, cache)
    tar("-C", root, "--exclude=./dev/*", "-xf", start)
    return f"{name} {os.stat(start).st_mtime_ns}"


def base(name, cache):
    """A tar of the base image, made once from Debian's packages as the official image is: minbase,
    less documentation."""
    if name not in SUITES:
        raise Broken(f"FROM {name}: this check can make {', '.join(SUITES)} only")
    suite = SUITES[name]
    made = cache / f"{suite}-slim.tar"
    if not made.exists():
        if not shutil.which("mmdebstrap"):
            raise Broken(
                f"mmdebstrap is missing, which makes {name} from Debian's packages: apt-get install mmdebstrap")
        say(f"{name} from Debian's packages (once, half a minute)")
        part = f"{made}.{os.getpid()}.part.tar"  # two checks at once make it twice, each whole
        options = [f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in ("doc", "locale", "man", "info")]
        done = subprocess.run(
            ["mmdebstrap", "--variant=minbase", "--mode=root", "--include=usr-is-merged",
             "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", *options, suite, part],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Broken(
                f"mmdebstrap could not make {name}; it needs a Debian mirror:\n{done.stdout[-2000:]}")
        os.rename(part, made)
    return made


def bind(source, target):
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)


def unmount(targets):
    for target in reversed(targets):
        subprocess.run(["umount", str(target)], check=True)


def with_devices(root):
    """Gives root the devices every container has; returns the mounts."""
    mounts = []
    for name in DEVICES:
        mounts.append(root / "dev" / name)
        bind(pathlib.Path("/dev") / name, mounts[-1])
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        if not os.path.lexists(root / "dev" / name):
            os.symlink(f"/proc/self/{target}", root / "dev" / name)
    return mounts


def run(root, text, env, workdir="/", folders=None):
    """A RUN, in the shell form, with this machine's network; folders: {place in root: folder here},
    for its time."""
    mounts = with_devices(root)
    # Resolved: behind a symbolic link the name servers would not be found in there.
    for place, folder in {"/etc/resolv.conf": os.path.realpath("/etc/resolv.conf"),
                          **(folders or {})}.items():
        mounts.append(inside(root, place))
        bind(pathlib.Path(folder), mounts[-1])
    try:
        done = subprocess.run(["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child",
                               "--mount-proc", f"--root={root}", f"--wd={workdir}", "/bin/sh", "-c", text],
                              env={**PROXIES, **env, "HOME": "/root"}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    finally:
        unmount(mounts)
    if done.returncode:
        raise Broken(f"RUN failed with {done.returncode}:\n{text[:200]} …\n{done.stdout[-3000:]}")


def build(stages, context, artefact, cache, root, arguments):
    """The last stage in root. artefact(stage, path) is where the file at path of an earlier stage
    lies here. A RUN's result is kept in cache by what led to it, as an engine keeps layers."""
    stage = stages[-1]
    image, variables = Image(root), {}
    history = hashlib.sha256(begin(stage.base, cache, root).encode())
    for at in stage.instructions:
        variables_now = {**variables, **image.env}
        text = dockerfile.expand(at.text, variables_now)
        if at.word == "RUN" and stage.base == "scratch":
            raise Broken(f"line {at.line}: RUN in an image from scratch: it has no shell")
        if at.word == "RUN":
            history.update(f"RUN {at.text} {sorted(variables_now.items())}".encode())
            layer = cache / f"layer-{history.hexdigest()[:16]}.tar"
            if layer.exists():
                os.utime(layer)
                subprocess.run(["find", root, "-mindepth", "1", "-delete"], check=True)
                tar("-C", root, "-xf", layer)
            else:
                started = time.monotonic()
                run(root, at.text, variables_now, image.workdir)
                if time.monotonic() - started < QUICK:
                    continue
                tar("-C", root, "-cf", f"{layer}.part", ".")
                os.rename(f"{layer}.part", layer)
                for unused in sorted(cache.glob("layer-*.tar"), key=os.path.getmtime)[:-LAYERS]:
                    unused.unlink()
        elif at.word == "COPY":
            copy(at, text, image, context, artefact, history)
        elif at.word == "ARG":
            name, _, default = text.partition("=")
            variables[name] = arguments.get(name, default)
        elif at.word in ("ENV", "LABEL"):
            (image.env if at.word == "ENV" else image.labels).update(dockerfile.pairs(at, variables_now))
        elif at.word == "WORKDIR":
            image.workdir = os.path.join(image.workdir, text)
            inside(root, image.workdir).mkdir(parents=True, exist_ok=True)
        elif at.word == "USER":
            image.user = text
        elif at.word == "VOLUME":
            image.volumes += dockerfile.command(at) if text.startswith("[") else text.split()
        elif at.word == "EXPOSE":
            image.ports += text.split()
        elif at.word == "STOPSIGNAL":
            image.stop_signal = text
        elif at.word == "HEALTHCHECK":
            word, _, words = at.text.partition(" ")
            image.health = (dict(at.flags), dockerfile.command(at, words)) if word == "CMD" else None
        elif at.word == "ENTRYPOINT":
            image.entrypoint, image.cmd = dockerfile.command(at), []
        elif at.word == "CMD":
            image.cmd = dockerfile.command(at)
    return image


def inside(root, path):
    return root / path.lstrip("/")


def copy(at, text, image, context, artefact, history):
    flags, words = dict(at.flags), text.split()
    if unread := set(flags) - {"from", "chown"}:
        raise Broken(f"line {at.line}: this check does not read COPY --{', --'.join(unread)}")
    uid, gid, _ = owner(image.root, flags.get("chown", "0:0"))
    *sources, target = words
    for source in sources:
        place = inside(image.root, os.path.join(image.workdir, target))
        if target.endswith("/"):
            place = place / os.path.basename(source)
        elif len(sources) > 1:
            raise Broken(f"line {at.line}: COPY of several files into {target}: a folder ends in /")
        if "from" in flags:
            file = artefact(flags["from"], source)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file is None:  # an empty folder
                place.mkdir(exist_ok=True)
            else:
                shutil.copy2(file, place)
        else:
            context.copy(source, place)
        for file in [place, *place.rglob("*")]:
            os.chown(file, uid, gid, follow_symlinks=False)
            if file.is_file():
                history.update(f"COPY {file} ".encode() + hashlib.sha256(file.read_bytes()).digest())


def owner(root, user):
    """The numbers of a USER, by the image's own files."""
    name, _, group = user.partition(":")
    entries = {fields[0]: fields for fields in table(root / "etc/passwd")}
    groups = {fields[0]: int(fields[2]) for fields in table(root / "etc/group")}
    if name.isdigit():
        entry = next((fields for fields in entries.values() if fields[2] == name), None)
        uid = int(name)
    elif name in entries:
        entry, uid = entries[name], int(entries[name][2])
    else:
        raise Broken(f"USER {user}: the image's /etc/passwd has no {name}")
    if group and not group.isdigit() and group not in groups:
        raise Broken(f"USER {user}: the image's /etc/group has no {group}")
    gid = int(group) if group.isdigit() else groups[group] if group else int(entry[3]) if entry else 0
    return uid, gid, entry[5] if entry else "/"


def table(file):
    if not file.exists():  # from scratch
        return []
    return [line.split(":") for line in file.read_text().splitlines() if line.count(":") >= 3]
