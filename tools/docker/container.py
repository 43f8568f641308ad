"""Starts an image's folder as an engine would: own process numbers with the program as number 1,
own network, the Dockerfile's environment, user and working folder, volumes bound in. Runs as root
of its own namespaces (check.sh)."""

import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import time

from rootfs import bind, inside, owner, unmount, with_devices
from dockerfile import Broken

CLONE_NEWNET = 0x40000000


def leave_network():
    """This process, and what it starts, gets a network of its own: a loopback device and nothing
    else. Ports are free in it, and no program reaches beyond it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise Broken(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    SIOCSIFFLAGS, IFF_UP = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


class Container:
    def __init__(self, image, words=None, user=None, volumes=None, read_only=False, env=None):
        """image with CMD replaced by words, USER by user and variables by env; volumes: {path in the
        image: folder or file here}."""
        self.image, self.words = image, image.entrypoint + (image.cmd if words is None else words)
        self.uid, self.gid, home = owner(image.root, user or image.user or "root")
        self.env = {"HOSTNAME": "container", "HOME": home, **image.env, **(env or {})}
        self.mounts, self.made, self.volumes, self.read_only = [], [], volumes or {}, read_only
        self.process = self.log = None

    def __enter__(self):
        root = self.image.root
        for name in ("proc", "dev", "sys"):  # an engine mounts them
            (root / name).mkdir(exist_ok=True)
        if self.read_only:
            subprocess.run(["mount", "--bind", root, root], check=True)
            self.mounts.append(root)
        self.mounts += with_devices(root)
        for path, source in self.volumes.items():
            place = inside(root, path)
            self.made += [place] if not place.exists() else []
            bind(source, place)
            self.mounts.append(place)
        if self.read_only:
            subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.log:
            self.log.close()
        unmount(self.mounts)
        for place in self.made:  # the folder or file that a volume was bound to
            place.rmdir() if place.is_dir() else place.unlink()

    def prefix(self):
        return ["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                f"--root={self.image.root}", f"--wd={self.image.workdir}", f"--setgid={self.gid}",
                f"--setuid={self.uid}"]

    def start(self, log):
        self.log = open(log, "wb")
        self.process = subprocess.Popen(self.prefix() + self.words, env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT, cwd="/")

    def run(self, *words, limit=30):
        """A command beside it, as `docker exec` would: its exit status and what it said."""
        done = subprocess.run(self.prefix() + list(words), env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        return done.returncode, done.stdout

    def main(self):
        """The number, here, of the container's process 1."""
        return int(
            pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def said(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def stop(self, limit):
        """The image's stop signal to process 1; its exit status."""
        os.kill(self.main(), getattr(signal, self.image.stop_signal))
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Broken(
                f"{self.image.stop_signal} did not end process 1 within {limit} s:\n{self.said()[-1500:]}") from None


def fresh_volume(image, path, folder):
    """A new named volume: an engine fills it with what the image has at that place, owners
    included."""
    source = inside(image.root, path)
    if not source.is_dir():
        raise Broken(f"VOLUME {path}: the image has no such folder: a new volume would belong to root")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(folder)], check=True)
    return folder


def wait_for(condition, limit, what):
    """Calls condition until it is true; Broken with its last complaint when the time is up."""
    end = time.monotonic() + limit
    while True:
        done, why = condition()
        if done:
            return
        if time.monotonic() > end:
            raise Broken(f"{what}: not within {limit} s: {why}")
        time.sleep(0.1)
