"""Three generations of the SDK wait for a cold model by themselves, and raise their own errors
where waiting does not help."""
import os
import shutil

from conftest import GOLDEN, MODEL_DIR, PATIENCE, Server
from sdk import VERSIONS


def test_cold_and_broken_models(releases, tmp_path):
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
        said = {v: releases[v].start("sdk_waits.py", s.url, f"cold{i}", f"broken{i}", "cut", v)
                for i, v in enumerate(VERSIONS)}
        for version in VERSIONS:
            releases[version].end(said[version], PATIENCE)
        for i, version in enumerate(VERSIONS):
            refused = s.metric("sie_requests_total", model=f"cold{i}", endpoint="encode", status="error")
            assert refused >= 1, f"{version}: the model was there at once: nothing was waited for"
