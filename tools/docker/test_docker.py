"""Tests of the check: its reading of Dockerfiles, and that it notices what is broken on purpose.
The second part starts images as check.sh does and needs what check.sh needs. python3 -m unittest
discover tools/docker"""

import concurrent.futures
import pathlib
import subprocess
import tempfile
import unittest

import dockerfile
import rules
from dockerfile import Broken
from rootfs import Image

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


class Reading(unittest.TestCase):
    def test_stages(self):
        first, last = dockerfile.parse('ARG V="12"\nFROM a:${V}-x AS one\n# no\n'
                                       'RUN --mount=type=cache,target=/t \\\n # no\n\n  b \\\n  c\n'
                                       'FROM one\nENV A="b c" D=$E/f \\\n G=${H:-i}\n')
        self.assertEqual((first.base, first.name, last.base, last.name), ("a:12-x", "one", "one", "1"))
        run = first.instructions[0]
        self.assertEqual((run.line, run.flags, run.text.split()),
                         (4, [("mount", "type=cache,target=/t")], ["b", "c"]))
        self.assertEqual(dockerfile.pairs(last.instructions[0], {"E": "e"}),
                         {"A": "b c", "D": "e/f", "G": "i"})

    def test_refusals(self):
        for text, want in {"": "no FROM", "RUN x": "before the first FROM",
                           "FROM a\nADD b c": "does not read ADD", "FROM a\nRNU x": "RNU is no instruction",
                           "FROM a\nRUN x \\": "ends in a continuation", "FROM a b": "FROM IMAGE",
                           "FROM a\nRUN <<E": "here-documents"}.items():
            with self.assertRaisesRegex(Broken, want):
                dockerfile.parse(text)
        for text in ("sie-server", '"sie-server"', "[]", "[1]", "{}"):
            with self.assertRaisesRegex(Broken, "want the form"):
                dockerfile.command(dockerfile.Instruction(1, "CMD", [], text))

    def test_ignored_files(self):
        # As the documentation of .dockerignore has them.
        for patterns, ignored, kept in (
                ("a", ["a", "a/b", "a/b/c"], ["b/a", "ab"]),
                ("/a/", ["a/b"], ["b/a"]),
                ("*/temp*", ["x/temporary", "x/temp/y"], ["temp", "x/y/temp"]),
                ("**/*.go", ["a.go", "x/y/a.go"], ["a.goo"]),
                ("x?", ["xa"], ["x", "x/a"]),
                ("[a-c]1", ["b1"], ["d1"]),
                ("*.md\n!README.md", ["a.md"], ["README.md"]),
                ("d\n!d/keep\n# d/keep", ["d/x"], ["d/keep", "d/keep/x"])):
            ignore = dockerfile.Ignore(patterns)
            for path in ignored + kept:
                self.assertEqual(ignore.ignores(path), path in ignored, f"{patterns!r} and {path}")

    def test_secrets_and_built_things_stay_out(self):
        text = (ROOT / ".dockerignore").read_text()
        rules.kept_out(dockerfile.Ignore(text))
        for line in (".git", "build", "build-*", "bin", "**/.env*", "**/*.key", "models-cache", "**/*.o",
                     "**/__pycache__", "runtime/engine/*_gen.go"):
            with self.assertRaisesRegex(Broken, "lets through", msg=line):
                rules.kept_out(dockerfile.Ignore(text.replace(f"\n{line}\n", "\n", 1)))


class Contents(unittest.TestCase):
    def test_what_an_image_may_not_hold(self):
        for path, size in (("usr/bin/python3.11", 1), ("usr/bin/x86_64-linux-gnu-gcc-12", 1),
                           ("usr/bin/aarch64-linux-gnu-g++", 1),
                           ("usr/lib/libcuda.so.1", 1), ("opt/libcudart.so.13", 1), ("usr/lib/libsie.a", 1),
                           ("app/model.safetensors", 1), ("app/big", 251_000_000)):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True)
                with open(file, "wb") as f:
                    f.truncate(size)
                with self.assertRaisesRegex(Broken, "the image holds", msg=path):
                    rules.contents(Image(pathlib.Path(folder)))
                file.rename(pathlib.Path(folder) / "libgcc_s.so.1")
                (pathlib.Path(folder) / "libgcc_s.so.1").write_bytes(b"1")
                self.assertLess(rules.contents(Image(pathlib.Path(folder))), 1)

    def test_gpu_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            image = Image(pathlib.Path(folder))
            (image.root / "etc").mkdir()
            for name in ("passwd", "group"):
                (image.root / "etc" / name).touch()
            image.user, image.entrypoint, image.cmd, image.health, image.ports = "1:1", ["a"], ["b"], (
                {}, ["c"]), ["1"]
            image.env, image.volumes = {"HF_HOME": "/m", "NVIDIA_VISIBLE_DEVICES": "all"}, ["/m"]
            image.labels = {f"org.opencontainers.image.{name}": "x"
                            for name in ("title", "description", "licenses", "revision")}
            for value, want in (("utility", "lacks compute"), ("compute", "lacks utility"),
                                ("", "lacks compute, utility")):
                image.env["NVIDIA_DRIVER_CAPABILITIES"] = value
                with self.assertRaisesRegex(Broken, want):
                    rules.configuration(image, True)
            image.env["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
            rules.configuration(image, True)
            image.env["NVIDIA_VISIBLE_DEVICES"] = "none"
            with self.assertRaisesRegex(Broken, "must be all"):
                rules.configuration(image, True)


# What is broken, how, and what the check must say of it.
SPOILT = [
    ("an unpinned base", "FROM debian:12-slim", "FROM debian:latest", "name a version"),
    ("a base with another C library", "golang:${GO}-bookworm", "golang:${GO}-trixie", "newer C library"),
    ("an image of one machine", "FROM debian:12-slim", "FROM --platform=linux/amd64 debian:12-slim",
     "the last stage is always of linux/amd64"),
    ("a build for one machine", "--platform=$BUILDPLATFORM golang", "--platform=linux/amd64 golang",
     "stage build is always of linux/amd64"),
    ("the builder's programs in every image", "ARG TARGETARCH", "ARG TARGETARHC",
     "never asks for TARGETARCH"),
    ("an older Go", "ARG GO=1.26.8", "ARG GO=1.25.9", "go.mod needs Go"),
    ("a file that is not there", "COPY cmake cmake", "COPY kmake cmake",
     "COPY kmake: not in the build context"),
    ("a script that is copied later", "COPY tools/setup/deps.sh tools/setup/", "", "copied later, or never"),
    ("no such target", "make libsie", "make libsy", "no such target"),
    ("another place of the binary", "/src/bin/sie-server", "/src/sie-server",
     "the build leaves no such file"),
    ("a place outside the build", "/src/bin/sie-server", "/opt/sie-server", "not below its WORKDIR"),
    ("the binary not on the PATH", "sie-server /usr/local/bin/", "sie-server /opt/", "no such program"),
    ("root", "USER 1000:1000", "", "runs as root"),
    ("a user by name", "USER 1000:1000", "USER sie", "numbers only"),
    ("nobody of that name", "USER 1000:1000", "USER sei", "has no sei"),
    ("a shell as process 1", 'ENTRYPOINT ["sie-server"]', "ENTRYPOINT sie-server", "want the form"),
    ("no default arguments", 'CMD ["serve"]', "", "ENTRYPOINT names the program"),
    ("no health check", "HEALTHCHECK", "# HEALTHCHECK", "no HEALTHCHECK"),
    ("a health check that is always content", '["sie-server", "health"]', '["true"]', "where no server runs"),
    ("a health check that never is", '["sie-server", "health"]', '["curl", "localhost:8080/healthz"]',
     "just started"),
    ("models outside the volume", "VOLUME /app/.cache/huggingface", "VOLUME /data", "is no VOLUME"),
    ("a volume of root's", "VOLUME", "RUN chown root:root /app/.cache/huggingface\nVOLUME", "belongs to 0:0"),
    ("no folder below the volume", "VOLUME", "RUN rmdir /app/.cache/huggingface\nVOLUME", "no such folder"),
    ("a missing library", "VOLUME", "RUN rm /lib/x86_64-linux-gnu/libgcc_s.so.1\nVOLUME", "lacks libraries"),
    ("Python", "VOLUME", "RUN touch /usr/bin/python3\nVOLUME", "the image holds /usr/bin/python3"),
    ("a step that fails", "VOLUME", "RUN echo oh && false\nVOLUME", "RUN failed with 1"),
    ("a signal that is no stop", "STOPSIGNAL SIGTERM", "STOPSIGNAL SIGQUIT", "SIGQUIT ended process 1"),
    ("another port", 'CMD ["serve"]', 'CMD ["serve", "--port", "8081"]', "just started"),
    ("another port exposed", "EXPOSE 8080", "EXPOSE 8081", "the vectors of MiniLM: not within"),
    ("models looked for elsewhere", "SIE_DEVICE=cpu", "SIE_LOCAL_CACHE=/tmp", "embeddings: 502"),
    ("a GPU that is not there", "SIE_DEVICE=cpu", "SIE_DEVICE=cuda", "ended with 1"),
]


# The same of an image from scratch.
SPOILT_PROGRAM = [
    ("another program", "/src/bin/sie-gateway /usr", "/src/bin/sie-config /usr", "no such program"),
    ("a program with a C library", "/src/bin/sie-gateway /usr/local/bin/",
     "/src/bin/sie-server /usr/local/bin/sie-gateway", "is not static"),
    ("no bill of materials", "COPY --from=build /src/bin/sbom/sie-gateway.cdx.json /usr/share/doc/sie/", "",
     "the image holds"),
    ("another's bill", "sbom/sie-gateway.cdx.json /usr/share/doc/sie/",
     "sbom/sie-config.cdx.json /usr/share/doc/sie/sie-gateway.cdx.json", "no CycloneDX bill of sie-gateway"),
    ("no authorities", "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/", "",
     "the image holds"),
    ("a step", "USER", "RUN true\nUSER", "has no shell"),
    ("root", "USER 1000:1000", "", "runs as root"),
    ("another port", "EXPOSE 8080", "EXPOSE 8081", "answers on 8080"),
    ("no such command", 'CMD ["serve"]', 'CMD ["sreve"]', "ended with"),
    ("a health check that is always content", '["sie-gateway", "health"]', '["sie-gateway", "version"]',
     "where no sie-gateway runs"),
    ("no label", 'title="sie-gateway"', 'title=""', "title is missing"),
]


class Spoilt(unittest.TestCase):
    def test_a_program_alone(self):
        text = (ROOT / "Dockerfile.gateway").read_text()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = pool.map(lambda s: self.checked(s, text, "Dockerfile.gateway"), SPOILT_PROGRAM)
            for (what, _, _, want), (status, said) in zip(SPOILT_PROGRAM, answers):
                with self.subTest(what):
                    self.assertEqual(status, 1, said)
                    self.assertIn(want, said)

    def test_the_store_of_the_configuration(self):
        text, flag = (ROOT / "Dockerfile.config").read_text(), "--chown=1000:1000 "
        for old, new, want in [("# ", "# ", None), (flag, "", "/var/lib/sie-config belongs to 0:0"),
                               (flag, "--chmod=755 ", "does not read COPY --chmod"),
                               ("COPY --from=build " + flag, "# ", "the image has no such folder")]:
            with self.subTest(want):
                status, said = self.checked(("", old, new, want), text, "Dockerfile.config")
                self.assertEqual(status, 1 if want else 0, said)
                self.assertIn(want or "answered and stopped", said)

    def test_everything_is_noticed(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of each is waiting
            for (what, _, _, want), (status, said) in zip(SPOILT, pool.map(self.checked, SPOILT)):
                with self.subTest(what):
                    self.assertEqual(status, 1, said)
                    self.assertIn(want, said)

    @staticmethod
    def checked(spoilt, text=DOCKERFILE, name="Dockerfile"):
        """What check.sh answers to the Dockerfile with that change."""
        _, old, new, _ = spoilt
        if old not in text:
            return 0, f"the Dockerfile has no {old}"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / name
            file.write_text(text.replace(old, new, 1))
            done = subprocess.run([HERE / "check.sh", "--patience", "5", file], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout


if __name__ == "__main__":
    unittest.main()
