"""Three generations of the SDK wait for a cold model by themselves, and raise their own errors
where waiting does not help."""
import os
import shutil
import subprocess
import sys

from conftest import GOLDEN, MODEL_DIR, PATIENCE, ROOT, Server, die_with_parent

VERSIONS = ["0.3.4", "0.6.30", "0.10.1"]


def test_cold_and_broken_models(tmp_path):
    # Weights of its own for each: models of one directory share them, and what has failed is not
    # tried again soon. The cold ones are of a size that takes a while: a tiny one may be there before
    # the first answer, on a busy machine.
    models = [f"cut={GOLDEN / 'st-mean'}"]
    for i in range(len(VERSIONS)):
        cold = shutil.copytree(MODEL_DIR, tmp_path / f"cold{i}", copy_function=os.symlink)
        models.append(f"cold{i}={cold}")
        broken = shutil.copytree(GOLDEN / "st-mean", tmp_path / f"broken{i}")
        (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:1000])
        models.append(f"broken{i}={broken}")
    s = Server("--load-wait", "1us", models=",".join(models), preload="cut")
    with s.context():
        runs = []
        try:
            for i, version in enumerate(VERSIONS):
                env = dict(os.environ)
                if version != "0.10.1":
                    env["PYTHONPATH"] = str(ROOT / f"build/venv-clients/sdk-{version}")
                command = [sys.executable, str(ROOT / "tools/test/clients/sdk_waits.py"), s.url, f"cold{i}",
                           f"broken{i}", "cut", version]
                runs.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE,
                                             stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent))
            for version, run in zip(VERSIONS, runs):
                out, _ = run.communicate(timeout=PATIENCE)
                assert run.returncode == 0 and f"ok {version}" in out, out
        finally:
            for run in runs:
                run.kill()
                run.wait()
        for i, version in enumerate(VERSIONS):
            refused = s.metric("sie_requests_total", model=f"cold{i}", endpoint="encode", status="error")
            assert refused >= 1, f"{version}: the model was there at once: nothing was waited for"
