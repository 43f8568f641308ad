"""Quotas and priorities, as the official clients meet them: OpenAI, Cohere, Hugging Face, SIE."""
import cohere
import openai
import pytest
import requests
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from conftest import DOCS, GOLDEN, JUDGE, QUERY, TINY, Server, all_models, clustered, ended
from sdk import VERSIONS

CLIENTS = ["openai", "cohere", "hub", *VERSIONS]
# of each client: one without an item for an hour and more, one without for a moment
TENANTS = "".join(f"- {{name: spent-{c}, tokens: [spent-{c}], items_per_s: 0.01}}\n"
                  f"- {{name: brief-{c}, tokens: [brief-{c}], items_per_s: 50}}\n" for c in CLIENTS)
FILE = "tenants:\n" + TENANTS + """- {name: other, tokens: [other], models: [org/another]}
- {name: narrow, tokens: [narrow], in_flight_items: 3, max_priority: normal}
"""


@pytest.fixture(scope="module")
def url(target, tmp_path_factory):
    """A server, or a cluster of two workers, with the tokens."""
    root = tmp_path_factory.mktemp("tenants")
    tokens = root / "tokens.yaml"
    tokens.write_text(FILE)
    if target == "cluster":
        s = clustered(all_models(root), SIE_PRECISION="fp32", SIE_AUTH_TOKENS_FILE=str(tokens))
    else:
        s = Server("--precision", "fp32", preload=TINY,
                   models=f"{TINY}={GOLDEN / 'st-mean'},{JUDGE}={GOLDEN / 'rerank-sigmoid'}", env={"SIE_AUTH_TOKENS_FILE": str(tokens)})
    while True:  # until a worker takes the model, whose loading a quota does not wait for
        r = requests.post(f"{s.url}/v1/encode/{TINY}", json={"items": [{"text": "a"}]},
                          headers={"Authorization": "Bearer narrow"})
        if r.status_code == 200:
            break
        assert r.status_code in (202, 503), r.text
    yield s.url
    ended(s)


def spend(url, token, items):
    """Uses items of a token at once."""
    r = requests.post(f"{url}/v1/encode/{TINY}", json={"items": [{"text": "a"}] * items},
                      headers={"Authorization": f"Bearer {token}"})
    assert r.status_code == 200, r.text


def test_openai(url):
    spend(url, "spent-openai", 50)
    c = openai.OpenAI(base_url=url + "/v1", api_key="spent-openai", max_retries=0)
    with pytest.raises(openai.RateLimitError) as e:
        c.embeddings.create(model=TINY, input="a")
    assert e.value.status_code == 429 and int(e.value.response.headers["Retry-After"]) > 3000
    assert "items per second" in e.value.message and "spent-openai" in e.value.message
    # it waits for as long as it is told, and tries again
    spend(url, "brief-openai", 60)
    c = openai.OpenAI(base_url=url + "/v1", api_key="brief-openai", max_retries=3)
    assert c.embeddings.create(model=TINY, input="a").data
    for token, kind in ("other", openai.PermissionDeniedError), ("none", openai.AuthenticationError):
        c = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0)
        with pytest.raises(kind):
            c.embeddings.create(model=TINY, input="a")


def test_items_in_flight(url):
    c = openai.OpenAI(base_url=url + "/v1", api_key="narrow", max_retries=0)
    assert len(c.embeddings.create(model=TINY, input=["a"] * 3).data) == 3
    with pytest.raises(openai.BadRequestError) as e:  # it would never be admitted
        c.embeddings.create(model=TINY, input=["a"] * 4)
    assert "4" in e.value.message and "3" in e.value.message


def test_priorities(url, target):
    for name, status in ("high", 200), ("LOW", 200), ("urgent", 400 if target == "cluster" else 200):
        r = requests.post(f"{url}/v1/embeddings", json={"model": TINY, "input": "a"},
                          headers={"Authorization": "Bearer narrow", "X-SIE-Priority": name})
        assert r.status_code == status, (name, r.text)
    if target == "cluster":  # turns and priorities are the gateway's
        c = openai.OpenAI(base_url=url + "/v1", api_key="narrow", max_retries=0,
                          default_headers={"X-SIE-Priority": "urgent"})
        with pytest.raises(openai.BadRequestError, match="use high, normal or low"):
            c.embeddings.create(model=TINY, input="a")


def test_cohere(url):
    spend(url, "spent-cohere", 50)
    for c in cohere.Client(api_key="spent-cohere", base_url=url), cohere.ClientV2(api_key="spent-cohere",
                                                                                 base_url=url):
        with pytest.raises(cohere.TooManyRequestsError) as e:
            c.rerank(model=JUDGE, query=QUERY, documents=DOCS, request_options={"max_retries": 0})
        assert "items per second" in str(e.value.body)
    spend(url, "brief-cohere", 60)
    c = cohere.ClientV2(api_key="brief-cohere", base_url=url)
    r = c.rerank(model=JUDGE, query=QUERY, documents=DOCS, request_options={"max_retries": 5})
    assert len(r.results) == len(DOCS)


def test_hub(url):
    """huggingface_hub, which is what clients of text-embeddings-inference use, retries nothing."""
    spend(url, "spent-hub", 50)
    with pytest.raises(HfHubHTTPError) as e:
        InferenceClient(model=url, token="spent-hub").feature_extraction("a")
    r = e.value.response
    assert r.status_code == 429 and int(r.headers["Retry-After"]) > 3000
    assert r.json()["error_type"] == "Overloaded" and "items per second" in r.json()["error"], r.text
    assert len(InferenceClient(model=url, token="brief-hub").feature_extraction("a")) == 1


def test_sdk(url, sdk):
    spend(url, f"spent-{sdk.version}", 50)
    spend(url, f"brief-{sdk.version}", 60)
    sdk("sdk_quota.py", url, TINY, sdk.version, f"spent-{sdk.version}", f"brief-{sdk.version}", "other")
