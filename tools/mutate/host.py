"""The CPU kernels, their reference and csrc with mutants in them: Sources and Builder for what is
no CUDA.

A file is named by its path (kernels/cpu/rows.h). A unit is one compilation: kernels/cpu compiles
most files once for each instruction set, and every object of a file has the same mutants under the
same numbers. Assembly is not mutated."""

import pathlib
import re
import shlex
import subprocess

import build

_FOLDERS = ("kernels/cpu", "kernels/ref", "csrc")
# The tests' own; and what this machine does not compile, which would live whatever it does.
_NOT_MUTATED = {"csrc/hooks.h", "kernels/cpu/vec_neon.h"}
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"/]+\.h)"', re.MULTILINE)
_INCLUDE_CPU = re.compile(r'^\s*#\s*include\s+"(cpu/[^"/]+\.h)"', re.MULTILINE)
# Targets whose objects the programs hold. csrc_tests has csrc with hooks; kernels run on emulated
# instructions as well, and the tables on kernels that are made up.
_TARGETS = re.compile(r"CMakeFiles/(kernels_ref|kernels_cpu_\w+|kernels_\w+_emulated|table_emulated|table_made_up|"
                      r"csrc_hooked)\.dir/")
_OF_TABLE = re.compile(r"CMakeFiles/kernels_cpu_(\w+)\.dir/")
_TESTS = re.compile(
    r"CMakeFiles/(csrc_tests\.dir/csrc|(kernel_case_objects|kernel_tests)\.dir/kernels)/tests/\w+\.cc\.o")
# What a broken program may do before it ends: wait for ever, so its time is wall time.
PROGRAMS = {"csrc_tests": (), "kernel_tests": ("--host",)}


def _is_test(name):
    return name.startswith(("csrc/tests/", "kernels/tests/"))


class Sources(build.Sources):
    """Of csrc, without csrc/cuda, and of kernels/cpu and kernels/ref."""

    compare = True

    def _find(self, entries):
        self._sources = {}  # unit → path of what is compiled, relative to the root
        units = [build.words_of(entry) for entry in entries]
        emulated = any("kernels_avx512_emulated" in word for words in units for word in words)
        lacks = machine()[1]
        lacked = {table for table, flag in _FLAG_OF_TABLE.items() if flag in lacks} if emulated else set()
        self.lacks = () if emulated else lacks
        for entry, words in zip(entries, units):
            target = words[words.index("-o") + 1]
            path = pathlib.Path(entry["directory"], entry["file"]).resolve()
            self.objects.add(pathlib.Path(entry["directory"], target).resolve())
            if path.suffix != ".cc" or not (_TARGETS.search(target) or _TESTS.search(target)):
                continue
            table = _OF_TABLE.search(target)
            if table and table[1] in lacked:  # no test calls it here
                continue
            name = str(path.relative_to(self.root))
            if _is_test(name) and not self._includes(path.read_text(), self._folder(name)):
                continue
            self.commands[target] = (entry["directory"], words)
            self._sources[target] = name
        if not any(_TARGETS.search(unit) for unit in self.commands):
            raise build.BuildError(f"{self.build} has no objects of csrc_tests: configure it anew")
        for name in sorted(set(self._sources.values())):
            self._read(name)

    def _includes(self, text, folder):
        """Mutated files that a file of the folder includes. Tests of csrc see its headers as if
        they lay there, those of the kernels see kernels/cpu."""
        includes = (_INCLUDE_CPU if folder == "kernels" else _INCLUDE).findall(text)
        names = (f"{folder}/{include}" for include in includes)
        return [n for n in names if (self.root / n).is_file()]

    def _folder(self, name):
        folder = pathlib.PurePath(name).parent
        return str(folder.parent if _is_test(name) else folder)

    def _read(self, name):
        if name in self._all:
            return
        text = (self.root / name).read_text()
        self._all[name] = self._includes(text, self._folder(name))
        if str(pathlib.PurePath(name).parent) in _FOLDERS and name not in _NOT_MUTATED:
            self.text[name] = text
        for include in self._all[name]:
            self._read(include)

    def closure(self, name):
        """The mutated files that a unit, or a file, is made of."""
        if name not in self._closure:
            start = self._sources.get(name, name)
            seen, waiting = set(), [start]
            while waiting:
                one = waiting.pop()
                if one not in seen:
                    seen.add(one)
                    waiting += self._all[one]
            self._closure[name] = seen & set(self.text)
        return self._closure[name]

    def place(self, name):
        return name

    def source(self, unit, tree):
        name = self._sources[unit]
        return tree / name if name in self.text else self.root / name

    def original(self, unit):
        return str(self.root / self._sources[unit])

    def include_folders(self, unit, tree):
        name = self._sources[unit]
        return [tree / self._folder(name)] if _is_test(name) else []

    def other_headers(self, unit):
        paths = [*self.root.glob("kernels/*.h"), *self.root.glob("kernels/common/*.h"),
                 *self.root.glob("csrc/include/*.h")]
        if self._sources[unit].startswith("csrc/"):
            paths += [self.root / "csrc/hooks.h", *self.root.glob("kernels/tests/*.h"),
                      *self.root.glob("csrc/tests/*")]
        elif "emulated" in unit:
            paths += self.root.glob("kernels/tests/emulated*.h")
        elif self._sources[unit].startswith("kernels/tests/"):
            paths += self.root.glob("kernels/tests/*.h")
        return build.digest_of(p.read_text() for p in sorted(paths) if p.is_file())

    def tests_digest(self):
        paths = [self.root / "kernels" / "ops.h", *(self.root / "csrc" / "include").glob("*.h")]
        for folder in ("kernels/tests", "kernels/common", "csrc/tests"):
            paths += [p for p in (self.root / folder).rglob("*")
                      if p.suffix in (".h", ".cc", ".c", ".bin", ".txt")]
        return build.digest_of(str(p) + p.read_text(errors="replace") for p in sorted(set(paths)))


class Builder(build.Builder):
    def link(self, program, objects, folder):
        """The build's own link command with these objects in place of the build's: those it names
        are replaced, and those that it takes out of libsie.a come first."""
        command = self._link_command(program)
        mine = {unit: str(path) for unit, path in objects.items()}
        named = set(command) & set(mine)
        first = [p for u, p in mine.items() if u not in named and
                 u.startswith(("CMakeFiles/kernels_ref", "CMakeFiles/kernels_cpu"))]
        place = next(i for i, word in enumerate(command) if word.endswith(".o"))
        words = [mine.get(word, word) for word in command]
        path = folder / program
        words[words.index("-o") + 1] = str(path)
        added = [str(p) for p in (folder / "switch.o", folder / "judge.o") if p.exists()]
        self._run([*words[:place], *first, *added, *words[place:]], self.sources.build)
        return path

    def _link_command(self, program):
        build_folder = self.sources.build
        text = build_folder / "CMakeFiles" / f"{program}.dir" / "link.txt"
        if text.exists():
            return shlex.split(text.read_text())
        result = subprocess.run(["ninja", "-C", str(build_folder), "-t", "commands", program],
                                capture_output=True, text=True)
        lines = [line for line in result.stdout.splitlines() if f"-o {program} " in line]
        if result.returncode != 0 or not lines:
            raise build.BuildError(f"{build_folder} cannot link {program}: build it first")
        return shlex.split(lines[-1].removeprefix(": && ").removesuffix(" && :"))


# Flags of /proc/cpuinfo that tables need (cmake/kernels.cmake).
_FLAGS = {"x86": ("avx2", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile"),
          "arm64": ("asimd", "asimddp")}
_FLAG_OF_TABLE = {"avx512": "avx512vl", "vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "amx": "amx_tile"}


def machine(cpuinfo=None):
    """The flags that this machine has of those that tables need, and those of its kind that it lacks:
    a table runs on machines alone that have it, so mutants of its kernels survive on all others."""
    if cpuinfo is None:
        path = pathlib.Path("/proc/cpuinfo")
        cpuinfo = path.read_text() if path.exists() else ""
    line = re.search(r"^(flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    if line is None:
        return (), ()
    words = line[2].split()
    flags = _FLAGS["x86" if line[1] == "flags" else "arm64"]
    return tuple(f for f in flags if f in words), tuple(f for f in flags if f not in words)


def is_file(name):
    """Whether the name is one of this kind of sources: those of kernels/cuda have no folder."""
    return "/" in name


