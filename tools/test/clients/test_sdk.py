"""The official SDK, three generations, unmodified."""
import numpy as np

from conftest import MODEL


def test_sdk(server, golden, sdk, tmp_path):
    texts, vectors = golden
    np.savez(tmp_path / "golden.npz", texts=np.array(texts[:40]), vectors=vectors[:40])
    sdk("sdk_case.py", server.url, MODEL, sdk.version, tmp_path / "golden.npz")
