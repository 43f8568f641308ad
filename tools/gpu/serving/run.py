"""run.py STEP WORK RESULTS — one step of the check of models and server; check.sh runs them in
order, each with its own time bound.

WORK holds models, texts and logs, RESULTS/serving the steps' results. Steps: doctor, prepare,
headline, latency, load, overload, memory, quality, compiled; and report, which joins what there is into
RESULTS/<card>.json and a picture. Exit 1 and a line that begins with MISSED where something is not
as it must be.
"""

import signal
import sys
from pathlib import Path

import plan
from racers import Failed
from results import Results


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    name, work, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    # its time is up: servers are closed on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(folder / "serving", plan.current().rehearsal)
    if name == "report":
        import report

        return report.write(results, folder)
    import stage
    import steps

    if name not in steps.STEPS:
        sys.exit(f"run.py: no step {name}; there are {', '.join(steps.STEPS)} and report")
    run = stage.Run(plan.current(), work, results)
    try:
        missed = steps.STEPS[name](run)
    except Failed as err:
        missed = [str(err)]
    except OSError as err:  # a server that is gone, a full disk
        missed = [f"{name} was broken off: {err}; {run.last_words()}"]
    results.save(f"missed-{name}", missed)
    for what in missed:
        print(f"MISSED {what}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
