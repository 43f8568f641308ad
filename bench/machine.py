"""What the race runs on: usable CPUs, instruction set classes, names and versions for the
record."""

import os
import platform
import re
import subprocess
from pathlib import Path

# Class → what the CPU must have, our --isa, the precisions of ours that make sense, the one that the server
# chooses there, and, where peers lose AMX, the most that oneDNN may use. The best class comes first.
CLASSES = {
    "amx": {"needs": {"amx_tile", "amx_bf16"}, "isa": "amx", "precisions": ("fp32", "bf16", "int8"),
            "served": "bf16", "onednn": None},
    "avx512-bf16": {"needs": {"avx512f", "avx512_vnni", "avx512_bf16"}, "isa": "avx512-bf16",
                    "precisions": ("fp32", "bf16", "int8"), "served": "fp32", "onednn": "AVX512_CORE_BF16"},
    "avx512": {"needs": {"avx512f", "avx512_vnni"}, "isa": "avx512-vnni", "precisions": ("fp32", "int8"),
               "served": "fp32", "onednn": "AVX512_CORE_VNNI"},
    "native": {"needs": set(), "isa": "best", "precisions": ("fp32", "int8"), "served": "fp32",
               "onednn": None},
}


def flags():
    match = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return set(match.group(1).split()) if match else set()


def multiplies_bf16():
    """Whether the CPU has an instruction for it, and so our class bf16."""
    return bool({"amx_bf16", "avx512_bf16"} & flags())


def classes(asked):
    """The classes to race: "best" is the fastest this machine has, "all" every one it can show."""
    have = flags()
    possible = [name for name, c in CLASSES.items() if c["needs"] and c["needs"] <= have] or ["native"]
    if asked == "best":
        return possible[:1]
    if asked == "all":
        return possible
    if asked not in possible:
        missing = ", ".join(sorted(CLASSES[asked]["needs"] - have)) or "need of it: it has classes of its own"
        raise SystemExit(f"--class {asked}: this CPU has no {missing}; it can race {', '.join(possible)}")
    return [asked]


def usable_cpus():
    """CPUs of the affinity mask, or what the cgroup's quota leaves of them."""
    cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cpus = max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # no cgroup v2: no quota to obey
    return cpus


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cpu_name(lscpu):
    match = re.search(r"^Model name:\s*(.+)$", lscpu, re.M)
    return match.group(1).strip() if match else platform.machine()


def slug(name):
    name = re.sub(r"\((r|tm|c)\)", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def describe():
    lscpu = _output("lscpu")
    commit = _output("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    if commit != "unknown" and _output("git", "status", "--porcelain", "--untracked-files=no"):
        commit += " with local changes"
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": cpu_name(lscpu),
        "lscpu": lscpu,
        "kernel": platform.release(),
        "memory_gib": round(int(memory.group(1)) / 2**20),
        "usable_cpus": usable_cpus(),
        "python": platform.python_version(),
        "commit": commit,
        "load_at_start": os.getloadavg()[0],
    }
