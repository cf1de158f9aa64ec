"""Sampling from a server compatible with OpenAI, on a real one that misbehaves; and the cache of responses."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autoclave.config import EndpointConfig
from autoclave.core import ConfigError, EngineFault, InputError
from autoclave.core.sqlite_files import KeptTexts
from autoclave.evaluation.endpoint import Endpoint
from autoclave.evaluation.responses import CachedResponses, Response, ResponseRequest
from autoclave.rollout import SamplingParameters, http_server
from tests.evaluation.chat_server import ChatServer

pytestmark = pytest.mark.timeout(60)

QUESTION = ResponseRequest(
    "p",
    ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say it."}),
    True,
    SamplingParameters(0.5, 0.9, 32, ("END",)),
    0,
)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: f"said {body['seed']}")
    yield server
    server.close()


def respond(server: ChatServer, *asked: ResponseRequest, **settings) -> list[Response]:
    endpoint = Endpoint(server.url, EndpointConfig(**settings))
    try:
        return [given.result() for given in endpoint.respond(asked or [QUESTION])]
    finally:
        endpoint.close()


def test_requests_and_responses_have_the_openai_format(server):
    (response,) = respond(server)
    (body,) = server.bodies
    assert response == Response(f"said {body['seed']}", "stop", 2, 7)
    assert body["messages"] == [dict(message) for message in QUESTION.messages]
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"], body["stop"]) == (
        *("m", 0.5, 0.9, 32),
        ["END"],
    )


def test_a_prompt_without_chat_is_a_completion_request(server):
    respond(server, replace(QUESTION, is_chat=False, messages=({"role": "user", "content": "def f():"},)))
    assert server.bodies[0]["prompt"] == "def f():"


def test_samples_of_one_question_have_seeds_of_their_own(server):
    respond(server, *(replace(QUESTION, sample=sample) for sample in range(4)))
    assert len({body["seed"] for body in server.bodies}) == 4


@pytest.mark.parametrize("trouble", [429, 500, 503, 529, "truncated", "damaged", "page", "empty", {"text": 3}])
def test_transient_errors_are_retried(server, trouble):
    server.trouble = [trouble, trouble]
    (response,) = respond(server)
    assert response.text.startswith("said")
    assert len(server.bodies) == 3


def test_a_request_without_an_answer_is_retried(server):
    server.trouble = ["silent"]
    assert respond(server, timeout_s=0.3)[0].text.startswith("said")


def test_retry_after_of_the_server_is_respected(server):
    server.trouble, server.retry_after = [429], "1"
    started = time.monotonic()
    respond(server)
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("trouble", [500, "damaged"])
def test_a_lasting_error_is_a_fault_that_names_the_server(server, trouble):
    server.trouble = [trouble] * 10
    with pytest.raises(EngineFault, match=server.url.removesuffix("/v1")):
        respond(server, retries=2)
    assert len(server.bodies) == 3


def test_answers_without_a_choice_end_in_a_fault(server):
    server.trouble = ["empty"] * 3
    with pytest.raises(EngineFault, match="no choice"):
        respond(server, retries=2)


def test_permanent_errors_are_not_retried(server):
    server.trouble = [501]
    with pytest.raises(InputError, match="501"):
        respond(server)
    assert len(server.bodies) == 1


def test_retry_after_may_be_a_date(server):
    server.trouble = [429]
    started = time.monotonic()
    server.retry_after = email.utils.formatdate(time.time() + 2, usegmt=True)
    respond(server)
    assert 0.9 < time.monotonic() - started < 20


def test_filtered_responses_are_marked(server):
    server.trouble = [{"message": {"content": None}, "finish_reason": "content_filter"}]
    assert respond(server) == [Response("", "filtered")]  # and numbers of tokens that are none are not counted


def test_stops_beyond_the_limit_of_servers_cut_the_text(server):
    server.say = lambda body: "one\nif two"
    stops = ("\nclass", "\ndef", "\n#", "\n@", "\nif")
    (response,) = respond(server, replace(QUESTION, parameters=replace(QUESTION.parameters, stops=stops)))
    assert server.bodies[0]["stop"] == [*stops[:4]]
    assert response.text == "one"


def test_api_keys_are_stripped_and_never_shown(server):
    endpoint = Endpoint(server.url, EndpointConfig(), lambda: "sk-SECRET\n")
    endpoint.respond([QUESTION])[0].result()
    endpoint.close()
    assert server.keys == ["Bearer sk-SECRET"]
    for key in ("sk-SE\nCRET", "sk-SECRÉT"):
        with pytest.raises(ConfigError, match="the key for") as error:
            Endpoint(server.url, EndpointConfig(), lambda key=key: key)
        assert "CR" not in str(error.value)


def test_equal_requests_are_sent_once(server, tmp_path):
    endpoint = Endpoint(server.url, EndpointConfig())
    with KeptTexts(tmp_path / "responses.sqlite", "responses") as cache:
        asked = [QUESTION, replace(QUESTION, question_id="same"), replace(QUESTION, sample=1)]
        given = [each.result() for each in CachedResponses(endpoint, cache).respond(asked)]
    endpoint.close()
    assert given[0] == given[1] != given[2]
    assert len(server.bodies) == 2


def test_an_unknown_model_is_reported_with_the_message_of_the_server(server):
    with pytest.raises(InputError, match="The model `other` does not exist"):
        respond(server, model="other")


def test_of_several_models_one_is_named():
    server = ChatServer(lambda body: "", models=("a", "b"))
    with pytest.raises(ConfigError, match=r"has a, b. Fix: name one"):
        respond(server)
    server.close()


def test_the_api_key_is_read_for_each_request(server):
    keys = iter(["first", "second", "third"])
    endpoint = Endpoint(server.url, EndpointConfig(concurrency=1), lambda: next(keys))  # the first lists the models
    for given in endpoint.respond([QUESTION, replace(QUESTION, sample=1)]):
        given.result()
    endpoint.close()
    assert server.keys == ["Bearer second", "Bearer third"]


def test_requests_start_at_the_configured_rate(server):
    started = time.monotonic()
    respond(server, *(replace(QUESTION, sample=sample) for sample in range(4)), requests_per_minute=600)
    assert server.begun[-1] - started >= 0.29


def test_the_account_counts_requests_tokens_and_cost(server):
    endpoint = Endpoint(server.url, EndpointConfig(input_price=1.0, output_price=2.0))
    for given in endpoint.respond([QUESTION, replace(QUESTION, sample=1)]):
        given.result()
    endpoint.close()
    assert endpoint.account() == {"requests": 2, "prompt_tokens": 14, "response_tokens": 4, "cost": 22 / 1e6}


def test_cached_responses_are_not_requested_again(server, tmp_path):
    endpoint = Endpoint(server.url, EndpointConfig())
    asked = [replace(QUESTION, sample=sample) for sample in range(3)]
    with KeptTexts(tmp_path / "cache/responses.sqlite", "responses") as cache:
        first = [given.result() for given in CachedResponses(endpoint, cache).respond(asked[:2])]
    with KeptTexts(tmp_path / "cache/responses.sqlite", "responses") as cache:
        cached = CachedResponses(endpoint, cache)
        again = [given.result() for given in cached.respond(asked)]
        assert cached.account()["from_cache"] == 2
        assert len(server.bodies) == 3
        assert [given.result() for given in CachedResponses(endpoint, cache, fresh=True).respond(asked)] == again
    endpoint.close()
    assert again[:2] == first
    assert len(server.bodies) == 6


@pytest.mark.parametrize(
    "other",
    [
        replace(QUESTION, sample=1),
        replace(QUESTION, is_chat=False),
        replace(QUESTION, messages=QUESTION.messages[1:]),
        replace(QUESTION, parameters=replace(QUESTION.parameters, temperature=0.6)),
        replace(QUESTION, parameters=replace(QUESTION.parameters, max_new_tokens=33)),
        replace(QUESTION, parameters=replace(QUESTION.parameters, stops=())),
    ],
)
def test_the_cache_key_covers_everything_a_response_depends_on(other):
    assert other.key("m") != QUESTION.key("m")
    assert QUESTION.key("m") != QUESTION.key("n")
    assert replace(QUESTION, question_id="q").key("m") == QUESTION.key("m")


def test_a_fault_is_not_kept(server, tmp_path):
    server.trouble = [500]
    endpoint = Endpoint(server.url, EndpointConfig(retries=0))
    with KeptTexts(tmp_path / "responses.sqlite", "responses") as cache:
        with pytest.raises(EngineFault):
            CachedResponses(endpoint, cache).respond([QUESTION])[0].result()
        assert CachedResponses(endpoint, cache).respond([QUESTION])[0].result().text.startswith("said")
    endpoint.close()


def test_a_damaged_cache_is_named(tmp_path):
    (tmp_path / "responses.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="AUTOCLAVE_CACHE"):
        KeptTexts(tmp_path / "responses.sqlite", "responses")
