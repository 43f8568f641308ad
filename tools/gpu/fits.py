"""fits.py BUNDLE [TARGETS] — whether the checkout and what is carried beside it fit on the way to a
GPU host: at most 62 MiB together, of these at most 30 MiB tracked files. Prints where the bytes
are; exit 1 where they are too many. TARGETS: what the bundle's kernels are for, as 80,90a. Standard
library only."""

import collections
import os
import subprocess
import sys

TRACKED, TOGETHER = 30 << 20, 62 << 20


def tracked(root):
    """{folder, two levels deep: bytes} of the files that git tracks."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    sizes = collections.Counter()
    for name in filter(None, listing.stdout.split("\0")):
        path = os.path.join(root, name)
        if os.path.lexists(path):
            sizes["/".join(name.split("/")[:-1][:2]) or "."] += os.lstat(path).st_size
    return sizes


def judge(sizes, bundle, targets=""):
    """(lines to print, whether all fits) of tracked files by folder and a bundle, in bytes."""
    mib = lambda n: f"{n / 2**20:.1f}"
    own = sum(sizes.values())
    said = [f"checkout {mib(own)} MiB, bundle {mib(bundle)} MiB, together {mib(own + bundle)} MiB"]
    if own > TRACKED:
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:4]
        said.append(f"the tracked files have {mib(own)} MiB, {TRACKED >> 20} are the most; the largest folders: " +
                    ", ".join(f"{name} {mib(size)}" for name, size in largest))
    if own + bundle > TOGETHER:
        said.append(f"together {mib(own + bundle)} MiB, {TOGETHER >> 20} are the most")
        if "," in targets:
            said.append(f"the bundle has kernels for {targets}: make gpu-bundle TARGETS=90a packs those of one "
                        "card (90a: H100, H200; cmake/cuda.cmake names the others)")
        elif targets:
            said.append(f"the bundle has kernels for {targets} alone: programs or tracked files have to shrink")
    return said, own <= TRACKED and own + bundle <= TOGETHER


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    said, good = judge(tracked(root), os.path.getsize(sys.argv[1]), "".join(sys.argv[2:]))
    print("\n".join(f"fits: {line}" for line in said))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
