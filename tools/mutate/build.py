"""Programs with mutants in them, from a finished CMake build: only what holds mutants is compiled
again (here kernels/cuda/*.cu; host.py: kernels/cpu, kernels/ref and csrc), everything else is
linked from what the build made."""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess

import instrument
import sites

HERE = pathlib.Path(__file__).resolve().parent
_INCLUDE = re.compile(r'^\s*#\s*include\s+"(cuda/[^"]+\.cuh?)"', re.MULTILINE)
# -O1: mutants run for seconds, and are compiled as often as run.
_FLAGS = ["-O1", "-g0", "-Wno-narrowing", "-Wno-psabi", "-Werror=vla"]
# An index outside its array ends the program; in a build with AddressSanitizer also what a kernel
# reads or writes behind an allocation or behind an array in registers: slower, so it judges what
# the other build lets live.
_BOUNDS = ["-fsanitize=bounds", "-fsanitize-undefined-trap-on-error"]


# The object libraries that a program has besides its own objects (cmake/tests.cmake).
_LIBRARIES = {"kernel_tests": ("kernel_case_objects", "kernels_avx512_emulated", "kernels_vnni_emulated",
                              "kernels_avx512bf16_emulated", "kernels_amx_emulated", "table_emulated",
                              "table_made_up", "operations_emulated", "operations_of_machine")}


class BuildError(Exception):
    pass


class Sources:
    """kernels/cuda: units (.cu files of the build) and the kernel headers they include."""

    compare = False  # instrument.py
    lacks = ()  # what tests want of the machine in vain: mutants that need it count as survivors

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        cache = self.build / "CMakeCache.txt"
        settings = cache.read_text() if cache.exists() else ""
        home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", settings, re.MULTILINE)
        if home is None:
            raise BuildError(f"{self.build} is no CMake build; `make test-c` makes one")
        self.root = pathlib.Path(home[1])
        commands = json.loads((self.build / "compile_commands.json").read_text())
        self.commands, self.objects = {}, set()
        self.text, self._all, self._closure, self._digests = {}, {}, {}, {}
        self._find(commands)
        self.files = sorted(self.text)
        self.mutants, self.parsed = {}, {}
        for name in self.files:
            self.mutants[name], self.parsed[name] = sites.find(name, self.text[name])

    def _find(self, entries):
        """Fills commands (unit → folder and words), objects (of the build), and text (file →
        text)."""
        folder = self.root / "kernels" / "cuda"
        for entry in entries:
            path = pathlib.Path(entry["directory"], entry["file"]).resolve()
            words = words_of(entry)
            self.objects.add(pathlib.Path(entry["directory"], words[words.index("-o") + 1]).resolve())
            if path.parent == folder and path.suffix == ".cu":
                self.commands[path.name] = (entry["directory"], words)
        if not self.commands:
            raise BuildError(
                f"{self.build} has no .cu file of {folder} in compile_commands.json: configure it anew")
        for unit in self.commands:
            self._read(folder, unit)

    def place(self, name):
        """Where a file lies in a mutated tree."""
        return f"cuda/{name}"

    def source(self, unit, tree):
        """What is compiled for the unit."""
        return tree / "cuda" / unit

    def original(self, unit):
        """How the build's command names it."""
        return str(self.root / "kernels" / "cuda" / unit)

    def include_folders(self, _unit, tree):
        # The mutated tree shadows kernels/cuda; kernels/cuda/ptx is found behind it.
        return [tree]

    def other_headers(self, _unit):
        kernels = self.root / "kernels"
        paths = [kernels / "ops.h", *kernels.glob("cuda/*.h"), *kernels.glob("cuda/ptx/*.h"),
                 *kernels.glob("simt/*.h"), *kernels.glob("common/*.h")]
        return digest_of(p.read_text() for p in sorted(paths))

    def _read(self, folder, name):
        if name in self.text:
            return
        self.text[name] = (folder / name).read_text()
        for include in _INCLUDE.findall(self.text[name]):
            self._read(folder, include.removeprefix("cuda/"))

    def closure(self, name):
        """The file and all kernel files it includes."""
        if name not in self._closure:
            self._closure[name] = {name}
            for include in _INCLUDE.findall(self.text[name]):
                self._closure[name] |= self.closure(include.removeprefix("cuda/"))
        return self._closure[name]

    def units_with(self, name):
        return sorted(unit for unit in self.commands if name in self.closure(unit))

    def digest(self, name):
        """Of everything that decides what a mutant of this file does, but the tests."""
        if name not in self._digests:
            names = set().union(*(self.closure(unit) for unit in self.units_with(name)))
            self._digests[name] = digest_of(self.text[n] for n in sorted(names))
        return self._digests[name]

    def tests_digest(self):
        kernels = self.root / "kernels"
        paths = [kernels / "ops.h"]
        for folder in ("tests", "simt", "ref", "common", "cuda/ptx", "cuda"):
            paths += [p for p in (kernels / folder).rglob("*") if p.suffix in (".h", ".cc", ".bin", ".txt")]
        return digest_of(str(p) + p.read_text(errors="replace") for p in sorted(set(paths)))


def words_of(entry):
    """The compiler's command without precompiled headers (cmake/precompile.cmake): with other flags
    than its own GCC reads one wrong, or dies of it."""
    words = shlex.split(entry["command"])
    places = [i for i, word in enumerate(words) if word == "-include" and "/cmake_pch." in words[i + 1]]
    return [word for i, word in enumerate(words) if i not in places and i - 1 not in places]


def object_of(folder, unit):
    return folder / (unit.replace("/", "+").removesuffix(".o") + ".o")


def digest_of(texts):
    h = hashlib.sha256()
    for text in texts:
        h.update(hashlib.sha256(text.encode()).digest())
    return h.hexdigest()[:24]


class Builder:
    """Compiles and links below `out`. jobs: compilers at a time."""

    def __init__(self, sources, out, jobs=2, say=print):
        self.sources, self.out, self.jobs, self.say = sources, pathlib.Path(out).resolve(), jobs, say
        flags = {flag for _, command in sources.commands.values() for flag in command}
        self.sanitize = ["-fsanitize=address"] if any(f.startswith("-fsanitize=") for f in flags) else []

    # ---- the build that holds all switchable mutants

    def instrumented(self, units, programs):
        """Compiles the units with every mutant behind its number and links the programs.

        Returns ({program: path}, {number: mutant}, [mutants that need a build of their own])."""
        names = sorted(set().union(*(self.sources.closure(u) for u in units)))
        mutants = [m for name in names for m in self.sources.mutants[name]]
        fixed = {m.id for m in mutants if m.fixed} | self._known_fixed(mutants)
        folder = self.out / "all"
        tree = folder / "source"
        while True:
            # One that is taken out leaves the others their numbers, and other files their text.
            switchable = {n: m for n, m in enumerate(mutants) if m.id not in fixed}
            written = {}
            for name in names:
                numbered = [(n, m) for n, m in switchable.items() if m.file == name]
                written[name] = instrument.instrument(self.sources.parsed[name], numbered,
                                                      self.sources.compare)
                _write(tree / self.sources.place(name), written[name].text)
            _write(tree / "mutant.h", instrument.HEADER)
            blamed = set()
            switch = ["-include", str(tree / "mutant.h")]
            with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
                outputs = list(pool.map(lambda u: self._compile(u, tree, folder, switch), units))
            for unit, output in zip(units, outputs):
                if output is not None:
                    blamed |= self._blamed(unit, output, tree, written)
            if not blamed:
                break
            fixed |= {switchable[n].id for n in blamed}
            self.say(
                f"mutate: {len(blamed)} more mutants stand where the compiler needs a constant: a build each")
        self._remember_fixed(fixed)
        _write(folder / "switch.cc", instrument.SWITCH)
        count = f"-DSIE_MUTANT_COUNT={len(mutants)}"
        compiler = ["g++", "-std=c++17", "-O1", "-I", str(tree), count, "-c"]
        self._run([*compiler, "switch.cc", "-o", "switch.o"], folder)
        self._run([*compiler, str(HERE / "judge.cc"), "-o", "judge.o"], folder)
        objects = {u: object_of(folder, u) for u in units}
        linked = {p: self.link(p, objects, folder) for p in programs}
        return linked, switchable, [m for m in mutants if m.id in fixed]

    def _blamed(self, unit, output, tree, written):
        places = {tree / self.sources.place(name): text for name, text in written.items()}

        def at(place):
            text = places.get(pathlib.Path(place["path"]))
            return set(text.blame(int(place["line"]), int(place["column"]))) if text is not None else set()

        # An error that is in no mutant's text came with one that a template was instantiated from,
        # or that a function with an immediate operand was inlined into: the next one out.
        blamed, way = set(), []
        for line in output.splitlines():
            if came := instrument.REQUIRED.match(line) or instrument.INLINED.match(line):
                way.append(came)
            elif error := instrument.ERROR.match(line):
                blamed |= next(filter(None, map(at, [error, *way])), set())
            elif "In instantiation of" in line or line.startswith("In function"):
                way = []
        if not blamed:
            raise BuildError(f"{unit} does not compile:\n{output[-3000:]}")
        return blamed

    def _known_fixed(self, mutants):
        path = self.out / "fixed.json"
        known = set(json.loads(path.read_text())) if path.exists() else set()
        return known & {m.id for m in mutants}

    def _remember_fixed(self, fixed):
        _write(self.out / "fixed.json", json.dumps(sorted(fixed)))

    # ---- one mutant

    def single(self, mutant, programs):
        """Programs with this mutant alone; None: it does not compile, and the compiler's words."""
        folder = self.out / "one"
        tree = folder / "source"
        for name in self.sources.files:
            _write(tree / self.sources.place(name), self.sources.text[name])
        _write(tree / self.sources.place(mutant.file),
               instrument.mutate(self.sources.parsed[mutant.file], mutant))
        units = self.sources.units_with(mutant.file)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            outputs = list(pool.map(lambda u: self._compile(u, tree, folder, []), units))
        for output in outputs:
            if output is not None:
                error = instrument.ERROR.search(output)
                return None, error["text"] if error else output[-300:]
        _write(folder / "switch.cc", "")
        self._run(["g++", "-c", "switch.cc", "-o", "switch.o"], folder)
        return {p: self.link(p, {u: object_of(folder, u) for u in units}, folder) for p in programs}, ""

    # ---- compiler and linker

    def _compile(self, unit, tree, folder, extra):
        """Compiles tree/cuda/unit. None, or what the compiler said."""
        directory, command = self.sources.commands[unit]
        source, original = self.sources.source(unit, tree), self.sources.original(unit)
        target = object_of(folder, unit)
        command = list(command)
        command[command.index("-o") + 1] = str(target)
        ending = original.removeprefix(str(self.sources.root))
        command = [str(source) if c == original or c.endswith(ending) and
                   not c.startswith("-") else c for c in command]
        command = [c for c in command if not c.startswith(("-W", "-fsanitize", "-fno-sanitize")) and
                   c != "-MD"]
        command += [*_FLAGS, *_BOUNDS, *self.sanitize, "-fmax-errors=200", "-fno-diagnostics-show-caret",
                    *extra]
        command[1:1] = [w for f in self.sources.include_folders(unit, tree) for w in ("-I", str(f))]
        stamp = target.with_suffix(".stamp")
        texts = ((tree / self.sources.place(name)).read_text() for name in sorted(self.sources.closure(unit)))
        key = digest_of([shlex.join(command), *texts, self.sources.other_headers(unit)])
        if stamp.exists() and stamp.read_text() == key and target.exists():
            return None
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if result.returncode != 0:
            return result.stderr
        stamp.write_text(key)
        return None

    def link(self, program, objects, folder):
        """The program of the build, these objects in place of its archive's."""
        build = self.sources.build
        targets = [program, *_LIBRARIES.get(program, ())]
        # An old build's folder may hold objects of sources that are gone.
        own = sorted(o for t in targets for o in (build / "CMakeFiles" / f"{t}.dir").rglob("*.o")
                     if o in self.sources.objects)
        if not own:
            raise BuildError(f"{build} has no objects of {program}: build it first")
        archives = [p for p in (build / "libsie_cuda_emulated.a", build / "libsie.a") if p.exists()]
        flags = next([f for f in c if f.startswith("-fsanitize=")] for _, c in self.sources.commands.values())
        path = folder / program
        self._run(["g++", *flags, "-o", str(path), *map(str, objects.values()), str(folder / "switch.o"),
                   *map(str, own), "-Wl,--start-group", *map(str, archives), "-Wl,--end-group", "-lm",
                   "-lpthread"], folder)
        return path

    def _run(self, command, directory):
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if result.returncode != 0:
            raise BuildError(f"{shlex.join(command)[:300]} …\n{result.stderr[-3000:]}")


def _write(path, text):
    """Leaves a file alone that has the text."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
