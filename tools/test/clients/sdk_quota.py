"""What one release of the official SDK makes of a spent quota; run in a process of its own.

Usage: sdk_quota.py URL MODEL VERSION SPENT BRIEF FORBIDDEN. The tokens: SPENT has no item left for an
hour, BRIEF for less than a second, FORBIDDEN may not use the model.
Exits non-zero when anything differs from what that release documents.
"""
import importlib.metadata
import sys

from sie_sdk import RequestError, SIEClient

url, model, version, spent, brief, forbidden = sys.argv[1:7]
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")


def raised(token):
    try:
        SIEClient(url, api_key=token).encode(model, {"text": "a"})
    except RequestError as e:
        return e
    raise AssertionError("no error")


e = raised(spent)
assert e.status_code == 429, repr(e)
if version == "0.10.1":
    from sie_sdk.client.errors import RateLimitError

    assert isinstance(e, RateLimitError) and e.retry_after > 3000, repr(e)
    # it waits for as long as it is told, and tries again
    assert len(SIEClient(url, api_key=brief).encode(model, {"text": "a"})["dense"]) > 0
e = raised(forbidden)
assert e.status_code == 403 and e.code == "FORBIDDEN", (e.status_code, e.code)
print("ok", version, flush=True)
