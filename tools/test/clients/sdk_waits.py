"""How one release of the official SDK waits for a cold model, and what it raises; run in a process
of its own.

Usage: sdk_waits.py URL COLD BROKEN CUT VERSION. COLD is a model that is not loaded, BROKEN one that
cannot be, CUT one whose texts are at most 40 tokens. The server answers MODEL_LOADING at once.
Exits non-zero when anything differs from what that release documents.
"""
import asyncio
import concurrent.futures
import importlib.metadata
import sys

import sie_sdk
from sie_sdk import RequestError, ServerError, SIEAsyncClient, SIEClient

url, cold, broken, cut, version = sys.argv[1:6]
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
client = SIEClient(url)


def raised(call):
    try:
        call()
    except Exception as e:
        return e
    raise AssertionError("no error")


pool = concurrent.futures.ThreadPoolExecutor(1)
# waits for its load too, meanwhile
failed = pool.submit(lambda: raised(lambda: SIEClient(url).encode(broken, {"text": "x"})))
assert len(client.encode(cold, {"text": "x"})["dense"]) == 384

e = failed.result()
assert isinstance(e, ServerError) and e.status_code == 502 and e.code == "MODEL_LOAD_FAILED", repr(e)
if hasattr(sie_sdk, "ModelLoadFailedError"):
    assert isinstance(e, sie_sdk.ModelLoadFailedError), type(e)
    assert (e.model, e.error_class, e.permanent, e.attempts) == (broken, "CONFIG", True, 1), vars(e)

long = {"text": "word " * 60}
e = raised(lambda: client.encode(cut, long, options={"overflow_policy": "error"}))
assert isinstance(e, RequestError) and e.status_code == 400 and e.code == "INPUT_TOO_LONG", repr(e)
if hasattr(sie_sdk, "InputTooLongError"):
    assert isinstance(e, sie_sdk.InputTooLongError), type(e)
assert len(client.encode(cut, long)["dense"]) == 32  # by default the text is cut

for bad, words in [
    (lambda: client.encode(cut, {"text": "x"}, options={"overflow_policy": "x"}), "Invalid overflow_policy"),
    (lambda: client.encode(cut, [{"id": "a"}]), "text"),
]:
    e = raised(bad)
    assert isinstance(
        e, RequestError) and e.status_code == 400 and e.code == "INVALID_INPUT" and words in str(e), repr(e)
e = raised(lambda: client.encode("no/model", {"text": "x"}))
assert isinstance(e, RequestError) and e.status_code == 404 and e.code == "MODEL_NOT_FOUND", repr(e)


async def errors():
    async with SIEAsyncClient(url) as c:
        for model, status in (broken, 502), ("no/model", 404):
            try:
                await c.encode(model, {"text": "x"})
            except (RequestError, ServerError) as e:
                assert e.status_code == status, repr(e)
            else:
                raise AssertionError(f"no error for {model}")


asyncio.run(errors())
client.close()
print("ok", version)
