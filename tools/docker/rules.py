"""What must hold of a Dockerfile, of the folder its last stage makes, and of .dockerignore. Each
rule says what it found and what is needed; all of them are asked before the first complaint ends
the check."""

import json
import os
import re
import stat
import struct

import dockerfile
from dockerfile import Broken
from rootfs import inside, owner

MEGABYTES = 250  # of an image, without models
# Nothing of a build, and of the GPU nothing: the driver's library comes with `docker run --gpus`.
UNWANTED = re.compile(r"""(^|/)(
    python[0-9.]* | pip[0-9.]* | gcc | g\+\+ | cc | c\+\+ | clang[^/]* | ld | as | nvcc | ptxas | go | cargo | rustc
    | cmake | make | git | curl | (x86_64|aarch64)-linux-gnu-(gcc|g\+\+|ld|as)[^/]*
    | lib(cuda|cudart|cublas|cublasLt|nvrtc|nvidia-ml|python)[^/]*\.so[^/]* | [^/]*\.(a|o|whl|safetensors|go))$""",
                      re.X)
# What lies, or may lie, in a working tree and never belongs into an image or its build.
KEPT_OUT = (".git/config", "build/libsie.a", "build/x", "build-asan/CMakeCache.txt", "bin/sie-server",
            "bin/cuda/sie-server", ".env", "deploy/.env.local", "tls.key", "models-cache/x",
            "kernels/cpu/x.o", "tools/kernels/__pycache__/x.pyc", "runtime/engine/libsie_gen.go",
            "runtime/engine/libsie_cuda_gen.go", "runtime/tokenizer/libtok_gen.go")


def together(rules):
    """Calls each rule; raises all their complaints as one."""
    problems = []
    for rule, arguments in rules:
        try:
            rule(*arguments)
        except Broken as e:
            problems.append(str(e))
    if problems:
        raise Broken("\n".join(problems))


def pinned(stages):
    names = {stage.name for stage in stages}
    for stage in stages:
        tag = stage.base.partition(":")[2]
        unnamed = not tag or tag == "latest" or "$" in stage.base
        if stage.base not in {"scratch", *names} and unnamed:
            raise Broken(f"FROM {stage.base}: name a version")
    runtime, builder = stages[-1].base, stages[-2].base if len(stages) > 1 else ""
    if runtime == "debian:12-slim" and not builder.endswith("-bookworm"):
        raise Broken(
            f"the build stage is {builder}, the last one Debian 12: a binary of a newer C library does not start there")


def platforms(stages):
    """One Dockerfile is for every machine: what compiles may run on the builder's own, and what is
    shipped is of the machine that was asked for."""
    if stages[-1].platform:
        raise Broken(f"the last stage is always of {stages[-1].platform}: leave --platform out")
    for stage in stages[:-1]:
        if stage.platform not in ("", "$BUILDPLATFORM"):
            raise Broken(f"stage {stage.name} is always of {stage.platform}: want --platform=$BUILDPLATFORM or none")
        compiles = any(at.word == "RUN" for at in stage.instructions)
        asks = any(at.word == "ARG" and at.text == "TARGETARCH" for at in stage.instructions)
        if compiles and stage.platform and not asks:
            raise Broken(f"stage {stage.name} runs on the builder's machine and never asks for TARGETARCH: "
                         "its programs would not start on another")


def go_version(stages, go_mod):
    """The build stage's Go must be new enough for go.mod: its image fetches no other."""
    wanted = re.search(r"^go (\S+)", go_mod, re.M)[1]
    found = next((stage.base for stage in stages if stage.base.startswith("golang:")), "golang:0")
    numbers = re.findall(r"\d+", found.partition(":")[2])[:3]
    if [int(n) for n in numbers] < [int(n) for n in wanted.split(".")]:
        raise Broken(f"go.mod needs Go {wanted}, the build stage is {found}")


def sources(stages, context, makefile):
    """What the build stages copy and call exists; what a step calls has been copied before it."""
    for stage in stages[:-1]:
        present = []
        for at in stage.instructions:
            words = at.text.split()
            if at.word == "COPY" and "from" not in dict(at.flags):
                for source in words[:-1]:
                    if not context.holds(source):
                        raise Broken(f"line {at.line}: COPY {source}: not in the build context")
                present += [os.path.normpath(source) for source in words[:-1]]
            if at.word != "RUN":
                continue
            for script in re.findall(r"\btools/[\w./-]+\.sh\b", at.text):
                if script not in context.files or not os.access(context.repository / script, os.X_OK):
                    raise Broken(f"line {at.line}: RUN {script}: not in the build context, or not executable")
                if not any(path in (".", script) or script.startswith(path + "/") for path in present):
                    raise Broken(f"line {at.line}: RUN {script}: copied later, or never")
            for target in re.findall(r"(?:^|[;&] *|\s)make ([a-z0-9-]+)", at.text):
                if not re.search(rf"^{target}:", makefile, re.M):
                    raise Broken(f"line {at.line}: RUN make {target}: the Makefile has no such target")
    if not any(at.word == "COPY" and dict(at.flags).get("from") for at in stages[-1].instructions):
        raise Broken("the last stage copies nothing from a build stage")


def kept_out(ignore):
    missed = [path for path in KEPT_OUT if not ignore.ignores(path)]
    if missed:
        raise Broken(f".dockerignore lets through {', '.join(missed)}")


def configuration(image, gpu):
    """What an engine will do with the image of a model server."""
    common(image)
    if not image.cmd:
        raise Broken(
            "ENTRYPOINT names the program and CMD its default arguments, so that `docker run IMAGE serve -m …` works")
    if not image.health:
        raise Broken("no HEALTHCHECK")
    if image.env.get("HF_HOME") not in image.volumes:
        raise Broken(
            f"HF_HOME={image.env.get('HF_HOME')} is no VOLUME: models would be fetched anew by every container")
    if gpu:
        if image.env.get("NVIDIA_VISIBLE_DEVICES") != "all":
            raise Broken("NVIDIA_VISIBLE_DEVICES must be all: the container toolkit reads it")
        lacking = {"compute", "utility"} - set(image.env.get("NVIDIA_DRIVER_CAPABILITIES", "").split(","))
        if lacking:
            raise Broken(
                f"NVIDIA_DRIVER_CAPABILITIES lacks {', '.join(sorted(lacking))}: a part of the driver would not be there")


def common(image):
    """What an engine will do with any image."""
    uid, _, _ = owner(image.root, image.user or "0:0")
    if uid == 0:
        raise Broken("the image runs as root: add USER 1000:1000")
    if not re.fullmatch(r"\d+(:\d+)?", image.user):
        raise Broken(f"USER {image.user}: Kubernetes' runAsNonRoot reads numbers only")
    if not image.entrypoint:
        raise Broken("no ENTRYPOINT")
    if not image.ports:
        raise Broken("no EXPOSE")
    for label in ("title", "description", "licenses", "revision"):
        if not image.labels.get(f"org.opencontainers.image.{label}"):
            raise Broken(f"LABEL org.opencontainers.image.{label} is missing")


def bare(image, program):
    """An image from scratch holds its program, what is in it and under which licences, and nothing to
    run besides."""
    found = sorted("/" + os.path.relpath(os.path.join(folder, name), image.root)
                   for folder, _, files in os.walk(image.root) for name in files)
    papers = "/usr/share/doc/sie/"
    wanted = sorted(["/etc/ssl/certs/ca-certificates.crt", f"/usr/local/bin/{program}", f"{papers}LICENSE",
                     f"{papers}NOTICE", f"{papers}{program}.cdx.json", f"{papers}{program}.licenses.txt"])
    if found != wanted:
        raise Broken(f"the image holds {', '.join(found)}; want {', '.join(wanted)}")
    header = inside(image.root, f"/usr/local/bin/{program}").read_bytes()[:1 << 16]
    if interpreter(header):
        raise Broken(f"{program} is not static: it needs {interpreter(header)}, which the image does not hold")


def interpreter(header):
    """The loader that an ELF program names, "" for a static one."""
    if header[:5] != b"\x7fELF\x02":
        raise Broken("the program is no 64-bit ELF file")
    start, = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    for i in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", header, start + i * size)
        if kind == 3:
            return header[offset:offset + length].rstrip(b"\0").decode()
    return ""


def papers(image, name):
    """The bill of materials names what is in the program, each with a licence, and the licences' texts
    are beside it."""
    folder = inside(image.root, "/usr/share/doc/sie")
    try:
        bill = json.loads((folder / f"{name}.cdx.json").read_text())
        texts = (folder / f"{name}.licenses.txt").read_text()
    except (OSError, ValueError) as e:
        raise Broken(f"no bill of materials, or no licences: {e}") from None
    if bill.get("bomFormat") != "CycloneDX" or bill["metadata"]["component"]["name"] != name:
        raise Broken(f"{name}.cdx.json is no CycloneDX bill of {name}")
    parts = bill["components"]
    without = [part["name"] for part in parts if not part["licenses"][0]["expression"]]
    missing = [part["name"] for part in parts if f"{part['name']} {part['version']} (" not in texts]
    if len(parts) < 10 or without or missing:
        raise Broken(f"{name}: {len(parts)} parts; without a licence {without}, without its text {missing}")
    return len(parts)


def volumes(image):
    uid, gid, _ = owner(image.root, image.user or "0:0")
    for volume in image.volumes:
        place = inside(image.root, volume)
        if not place.is_dir():
            raise Broken(f"VOLUME {volume}: the image has no such folder: a new volume would belong to root")
        found = place.stat()
        if (found.st_uid, found.st_gid) != (uid, gid):
            raise Broken(
                f"VOLUME {volume} belongs to {found.st_uid}:{found.st_gid}, and the server, which runs as {uid}:{gid}, "
                "could not write there")


def contents(image):
    """The image's megabytes; none of its files may be a build's or the driver's."""
    seen, total, unwanted = set(), 0, []
    for folder, _, files in os.walk(image.root):
        for name in files:
            path = os.path.join(folder, name)
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_size
            shown = "/" + os.path.relpath(path, image.root)
            if UNWANTED.search(shown) and not shown.startswith(("/proc/", "/dev/")):
                unwanted.append(shown)
    if unwanted:
        raise Broken(f"the image holds {', '.join(unwanted[:8])}")
    if total > MEGABYTES * 1e6:
        raise Broken(f"the image holds {total / 1e6:.0f} MB, more than {MEGABYTES}")
    return total / 1e6


def program(image):
    """The file that ENTRYPOINT starts."""
    for folder in image.env["PATH"].split(":"):
        found = inside(image.root, os.path.join(folder, image.entrypoint[0]))
        if found.is_file() and os.access(found, os.X_OK):
            return "/" + os.path.relpath(found, image.root)
    raise Broken(
        f'ENTRYPOINT ["{image.entrypoint[0]}"]: no such program on the image\'s PATH {image.env["PATH"]}')


def libraries(container, path):
    status, text = container.run("/usr/bin/ldd", path)
    missing = [line.strip() for line in text.splitlines() if "not found" in line]
    if status or missing:
        raise Broken(f"{path} lacks libraries in the image: {'; '.join(missing) or text.strip()}")
    named = re.findall(r"lib(?:cuda|cudart|python)[\w.]*", text)
    if named:
        raise Broken(f"{path} is linked to {', '.join(named)}: it would not start on a machine without")
    return sorted(line.split()[0] for line in text.splitlines() if "=>" in line)
