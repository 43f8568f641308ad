"""Which mutants a sample draws, and their verdicts in a given time."""

import concurrent.futures
import hashlib
import threading
import time

import inprocess
import runner
from session import CUDA

DRAWN = 96  # mutants of the host
FEW = 8  # of them, or of CUDA, that get more seconds
SLOWER = (1, 4, 16)  # times the seconds a sample was given, until one of its mutants is decided


def spread(mutants, seed):
    """All mutants in an order in which files and classes take turns; by the seed alone."""
    lots = {}
    for mutant in mutants:
        lots.setdefault((mutant.file, mutant.kind), []).append(mutant)

    def draw(text):
        return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()

    for lot in lots.values():
        lot.sort(key=lambda m: draw(m.id))
    order = sorted(lots, key=lambda k: draw("/".join(k)))
    for place in range(max(map(len, lots.values()), default=0)):
        for key in order:
            if place < len(lots[key]):
                yield lots[key][place]


def some_files(sources, names, seed, most):
    """Files by the seed, as many as a few units hold, and those units."""
    chosen, units = set(), set()
    for name in sorted(names, key=lambda n: hashlib.sha256(f"{seed}\n{n}".encode()).hexdigest()):
        more = units | set(sources.units_with(name))
        if len(more) <= most:
            chosen, units = chosen | {name}, more
    return chosen, sorted(units)


def judged(session, mutants):
    """Verdicts of a sample. A busy machine may decide none in the seconds that were given. Then a few
    mutants get more of them, because a sample without a verdict proves nothing."""
    for slower in SLOWER:
        verdicts = judge(session, mutants, slower)
        if verdicts:
            return verdicts
        session.say(f"mutate: no mutant was decided in {slower * session.options.seconds:.0f} s")
    return {}


def judge(session, mutants, slower):
    """Verdicts of the mutants, with so many times the seconds; of a few of them, when it is not once."""
    few, seconds = FEW if slower > 1 else None, slower * session.options.seconds
    if session.kind is not CUDA:
        session.self_check()
        return in_process(session, mutants[: few or DRAWN], time.monotonic() + seconds)
    session.try_first_parts({m.file for m in mutants}, slower)
    reached = [m for m in mutants if session.tests_for(m, near=True)]
    if not reached:
        return {}
    session.self_check()
    return alone(session, reached[:few], time.monotonic() + seconds, slower * session.options.longest)


def in_process(session, mutants, end):
    """Verdicts of host mutants: all by quick parts of the tests, then what lives, a few at a
    time, by all the others until the time is over. Each program has the same share of it."""
    verdicts, jobs = {}, session.options.jobs
    groups = {p: {session.numbers[m.id]: m for m in mutants if p in inprocess.programs_for(m.file)}
              for p in session.programs}
    waiting, last = [(p, named) for p, named in groups.items() if named], end
    for done, (program, named) in enumerate(waiting):
        end = time.monotonic() + (last - time.monotonic()) / (len(waiting) - done)
        tests = inprocess.tests_of(session.paths[program], program, session.programs[program],
                                   session.options.tests)
        first = [t for t in tests if t.part.split("/")[0] in ("", "0")]
        times = inprocess.Times(session.out / "times.json")
        quick = time.monotonic() + 0.75 * (end - time.monotonic())
        begun = inprocess.judge_all(session.paths, first, named, times, jobs, quick, longest=1,
                                    files={m.file for m in named.values()})
        verdicts |= {named[n].id: v for n, v in begun.killed.items()}
        session.say(f"mutate: {len(named)} mutants, {len(begun.live)} of them live through the quick tests: "
                    f"{time.monotonic() - session.begin:.0f} s")
        if not begun.complete:
            continue
        left, others = sorted(begun.live), begun.left_out + [t for t in tests if t not in first]
        while left and time.monotonic() < end:
            some, left = left[: 2 * jobs], left[2 * jobs :]
            result = inprocess.judge_all(session.paths, others, some, times, jobs, end)
            verdicts |= {named[n].id: v for n, v in result.killed.items()}
            if result.complete:
                verdicts |= {named[n].id: runner.Verdict("survived", "", "", "", 0.0)
                             for n in result.live}
    return verdicts


def alone(session, mutants, end, longest):
    """Verdicts of CUDA mutants, each by the programs run for it."""
    options = session.options
    verdicts, undecided, lock = {}, [], threading.Lock()

    def judged(mutant, tests, seeds, until):
        return runner.judge(session.paths, tests, session.numbers[mutant.id], seeds, until=until)

    def first(mutant):
        tests = session.tests_for(mutant, near=True)
        if not tests or time.monotonic() > end - 3 * longest:
            return
        verdict = judged(mutant, tests, (1,), end - 2 * longest)
        with lock:
            if verdict is None or verdict.outcome == "survived":
                undecided.append(mutant)
            else:
                verdicts[mutant.id] = verdict

    def again(mutant):
        """By all there is: the quick tests of one seed may have missed it."""
        verdict = judged(mutant, session.all_parts(), runner.SEEDS, end)
        if verdict is not None:
            with lock:
                verdicts[mutant.id] = verdict

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(first, mutants))
        list(pool.map(again, undecided))
    return verdicts
