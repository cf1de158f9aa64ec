"""Sampling over HTTP, on a real server in this process that has a tiny model."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from autoclave.config import OpenAiEngineConfig, SglangEngineConfig
from autoclave.core import ConfigError, EngineFault, FinishReason, InputError
from autoclave.models import Policy, save_model
from autoclave.rollout import http_server
from autoclave.rollout.http_engine import HttpEngine, openai_engine, sglang_engine
from autoclave_testing.engines import (
    DEADLINE_S,
    PROMPTS,
    EngineConformance,
    SamplingConformance,
    add,
    build_policy,
    collect,
    perturbed,
    plain_log_probs,
    request,
    sample,
    some_stop,
    step_until,
)
from tests.rollout.model_server import ModelServer

GREEDY = {"temperature": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    save_model(build_policy(), folder)
    return folder


@pytest.fixture
def server() -> Generator[ModelServer]:
    server = ModelServer(build_policy())
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _no_threads_stay() -> Generator[None]:
    yield
    deadline = time.monotonic() + DEADLINE_S
    while any(thread.name == "engine-request" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread of the engine did not end"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "FIRST_WAIT_S", 0.01)


def open_openai(server: ModelServer, folder: Path, **settings: object) -> HttpEngine:
    return openai_engine(OpenAiEngineConfig(url=server.url, **settings), folder)


def open_sglang(server: ModelServer, folder: Path, **settings: object) -> HttpEngine:
    return sglang_engine(SglangEngineConfig(url=server.url, **settings), folder)


class TestSglang(EngineConformance):
    num_responses = 24
    shares_prompts = in_lockstep = False

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, initial_policy: Policy, policy_folder: Path, tmp_path_factory) -> Generator[HttpEngine]:
        server = ModelServer(initial_policy)
        weights = tmp_path_factory.mktemp("weights")
        engine = open_sglang(server, policy_folder, weights_folder=str(weights), concurrency=16)
        yield engine
        engine.close()
        server.close()
        assert list(weights.iterdir()) == []


class TestOpenAi(SamplingConformance):
    num_responses = 24
    shares_prompts = raw_with_top_p = in_lockstep = False

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, initial_policy: Policy, policy_folder: Path) -> Generator[HttpEngine]:
        server = ModelServer(initial_policy)
        engine = open_openai(server, policy_folder, concurrency=16, log_probs="sampling_temperature")
        yield engine
        engine.close()
        server.close()


# --- Servers that have trouble -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [[429], [503, 500], ["break"], ["break", 502, "break"]])
@pytest.mark.parametrize("open_engine", [open_openai, open_sglang])
def test_a_request_survives_a_server_in_trouble_and_keeps_its_tokens(server, folder, open_engine, trouble):
    (expected,) = sample(open_engine(server, folder), [request(PROMPTS[0], 0, max_new_tokens=12, **GREEDY)])
    server.trouble += trouble
    (done,) = sample(open_engine(server, folder), [request(PROMPTS[0], 0, max_new_tokens=12, **GREEDY)])
    assert server.trouble == []
    assert done.tokens.tolist() == expected.tokens.tolist()
    assert done.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
    assert done.finish_reason is FinishReason.LENGTH


def test_what_goes_on_after_a_break_draws_other_random_numbers(server, folder):
    server.trouble += ["break", "break"]
    sample(open_openai(server, folder), [request(PROMPTS[0], 0, max_new_tokens=12)])
    seeds = [body["seed"] for path, body in server.asked if path == "/v1/completions"]
    assert len(seeds) == len(set(seeds)) == 3


def test_a_stop_string_is_found_across_a_break(server, folder):
    limit = {"max_new_tokens": 5, **GREEDY}
    decode = server.policy.tokenizer.decode
    answers = sample(open_openai(server, folder), [request([2, token, 3], 0, **limit) for token in range(4, 200)])
    tokens = [done.tokens.tolist() for done in answers]
    place = next(n for n, t in enumerate(tokens) if decode(t).isascii() and decode(t[2:4]) not in decode(t[:3]))
    whole, stop = answers[place], decode(tokens[place][2:4])  # the break is after three tokens
    server.trouble.append("break")
    (done,) = sample(open_openai(server, folder), [request(whole.prompt_tokens.tolist(), 0, stops=(stop,), **limit)])
    assert done.tokens.tolist() == whole.tokens[:4].tolist()
    assert done.text == decode(whole.tokens[:2].tolist())
    assert done.finish_reason is FinishReason.STOP


def test_a_server_that_stays_in_trouble_is_a_fault_that_says_so(server, folder):
    server.trouble += [503] * 9
    engine = open_openai(server, folder, retries=2)
    with pytest.raises(EngineFault, match="does not answer, after 3 tries: status 503"):
        sample(engine, [request(PROMPTS[0], 0)])
    assert server.paths().count("/v1/completions") == 3
    engine.close()


def test_a_server_that_is_gone_is_a_fault(server, folder):
    engine = open_openai(server, folder, retries=1)
    server.close()
    with pytest.raises(EngineFault, match="does not answer, after 2 tries: ConnectionRefusedError"):
        sample(engine, [request(PROMPTS[0], 0)])
    with pytest.raises(EngineFault, match=r"/health does not answer"):
        open_sglang(server, folder, retries=0)


def test_a_server_that_falls_silent_is_tried_again(server, folder):
    server.trouble += ["silent"]
    engine = open_openai(server, folder, timeout_s=0.5, retries=20)  # a busy machine may be as silent now and then
    assert len(sample(engine, [request(PROMPTS[0], 0, max_new_tokens=2, **GREEDY)])[0].tokens) == 2
    engine.close()
    server.trouble += ["silent"] * 2
    engine = open_openai(server, folder, timeout_s=0.5, retries=1)
    with pytest.raises(EngineFault, match="after 2 tries: TimeoutError"):
        sample(engine, [request(PROMPTS[0], 0)])


def test_a_request_that_the_server_refuses_is_an_error_with_its_words(server, folder):
    server.trouble.append(400)
    engine = open_openai(server, folder)
    with pytest.raises(InputError, match=r"/v1/completions: refused with status 400: .*trouble"):
        sample(engine, [request(PROMPTS[0], 0)])
    assert len(sample(engine, [request(PROMPTS[0], 0, max_new_tokens=2, **GREEDY)])[0].tokens) == 2


@pytest.mark.parametrize(
    ("tries", "error", "expected"), [(0, OSError(), 0.5), (3, OSError(), 4.0), (20, OSError(), 30)]
)
def test_waits_double_up_to_a_limit(tries, error, expected, monkeypatch):
    monkeypatch.setattr(http_server, "FIRST_WAIT_S", 0.5)
    assert http_server.waiting_s(tries, error) == expected
    assert http_server.waiting_s(tries, http_server.Unavailable("busy", 7.0)) == 7.0


# --- What a server gets to see -------------------------------------------------------------------------------------


def test_no_more_requests_are_at_the_server_than_allowed(server, folder):
    server.pause_s = 0.03
    engine = open_sglang(server, folder, concurrency=3)
    places = add(engine, [request(PROMPTS[0], number, max_new_tokens=4) for number in range(10)])
    engine.step(0.0)
    assert (engine.stats.running, engine.stats.waiting) == (3, 7)
    collect(engine, places)
    assert server.most_sampled == 3


def test_a_closed_engine_cuts_its_requests_off_at_the_server(server, folder):
    server.pause_s = 0.01
    engine = open_openai(server, folder)
    add(engine, [request(PROMPTS[0], 0, max_new_tokens=1000, **GREEDY)])
    step_until(engine, 2)
    engine.close()
    deadline = time.monotonic() + DEADLINE_S
    while server.sampled:
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.01)
    assert server.cut_off == 1


def test_the_key_is_sent_and_never_shown(server, folder, monkeypatch):
    monkeypatch.setenv("MY_KEY", "s3cret")
    engine = open_openai(server, folder, api_key_variable="MY_KEY")
    assert engine._dialect._server.key == "s3cret"
    assert "s3cret" not in repr(engine._dialect._server)
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigError, match="api_key_variable = 'MY_KEY': it is not set"):
        open_openai(server, folder, api_key_variable="MY_KEY")


@pytest.mark.parametrize("open_engine", [openai_engine, sglang_engine])
def test_a_server_has_to_be_named(open_engine, folder):
    settings = OpenAiEngineConfig() if open_engine is openai_engine else SglangEngineConfig()
    with pytest.raises(ConfigError, match=r"sampler.engine.url: name the server"):
        open_engine(settings, folder)


# --- OpenAI --------------------------------------------------------------------------------------------------------


def test_such_a_server_takes_no_weights(server, folder):
    with pytest.raises(ConfigError, match="can be evaluated and not trained"):
        open_openai(server, folder).update_weights(1, {})


def test_log_probs_of_another_temperature_are_refused(server, folder):
    engine = open_openai(server, folder)
    with pytest.raises(
        InputError, match=r"temperature = 0\.7: the log-probs of this server are those at temperature 1"
    ):
        engine.add({1: request(PROMPTS[0], 0, temperature=0.7)})
    assert engine.stats.waiting == 0
    with pytest.raises(InputError, match=r"temperature = 0\.7"):
        engine.add({1: request(PROMPTS[0], 0), 2: request(PROMPTS[0], 0, temperature=0.7)})
    assert engine.stats.waiting == 0


def test_log_probs_of_a_cut_nucleus_are_called_processed(server, folder):
    engine = open_openai(server, folder, log_probs="sampling_temperature")
    asked = [
        request(PROMPTS[0], 0, temperature=temperature, top_p=top_p, max_new_tokens=2)
        for temperature, top_p in ((0.7, 0.9), (0.7, 1.0), (0.0, 0.9))
    ]
    assert [done.log_prob_kind for done in sample(engine, asked)] == ["processed", "raw", "raw"]


def test_a_server_that_does_not_say_its_tokens_is_refused(server, folder):
    server.says_tokens = False
    engine = open_openai(server, folder)
    with pytest.raises(InputError, match="does not say which tokens it sampled; it must understand return_token_ids"):
        sample(engine, [request(PROMPTS[0], 0)])
    engine.close()


def test_a_model_has_to_be_named_where_there_are_several(server, folder, monkeypatch):
    monkeypatch.setattr(http_server.Server, "ask", lambda *_: {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(ConfigError, match=r"sampler.engine.model: .* has a, b. Fix: name one"):
        open_openai(server, folder)


# --- SGLang --------------------------------------------------------------------------------------------------------


def test_a_stream_of_differences_is_read_like_one_of_sums(server, folder):
    asked = [request(prompt, 5, max_new_tokens=15) for prompt in PROMPTS]
    expected = sample(open_sglang(server, folder), asked)
    server.incremental = True
    for found, other in zip(sample(open_sglang(server, folder), asked), expected, strict=True):
        assert found.tokens.tolist() == other.tokens.tolist()


def test_weights_come_to_a_server_that_is_paused_and_whose_caches_are_dropped(server, folder, tmp_path):
    engine = open_sglang(server, folder, weights_folder=str(tmp_path))
    changed = perturbed(server.policy, seed=1)
    engine.update_weights(3, dict(changed.model.state_dict()))
    expected = ["/pause_generation", "/update_weights_from_disk", "/flush_cache", "/continue_generation"]
    assert server.paths() == ["/health", *expected]
    about = server.asked[2][1]
    assert (about["weight_version"], about["flush_cache"]) == ("3", True)
    assert not server.is_paused
    assert list(tmp_path.iterdir()) == []
    (done,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=10)])
    assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=1e-4)


def test_weights_that_the_server_refuses_are_an_error_and_it_is_not_left_paused(server, folder, tmp_path):
    engine = open_sglang(server, folder, weights_folder=str(tmp_path))
    weights = dict(server.policy.model.state_dict())
    del weights["model.norm.weight"]
    with pytest.raises(InputError, match="/update_weights_from_disk: refused with status 400"):
        engine.update_weights(3, weights)
    assert not server.is_paused
    assert list(tmp_path.iterdir()) == []


def test_weights_need_a_folder_to_go_through(server, folder):
    with pytest.raises(ConfigError, match=r"sampler.engine.weights_folder: name a folder"):
        open_sglang(server, folder).update_weights(1, {})


def test_a_stop_string_ends_a_response_that_new_weights_interrupted(server, folder, tmp_path):
    server.pause_s = 0.005
    engine = open_sglang(server, folder, weights_folder=str(tmp_path))
    (whole,) = sample(engine, [request(PROMPTS[0], 0, max_new_tokens=30, **GREEDY)])
    stop, tokens = some_stop(server.policy, whole)
    places = add(engine, [request(PROMPTS[0], 0, max_new_tokens=30, stops=(stop,), **GREEDY)])
    step_until(engine, 1)
    engine.update_weights(8, dict(server.policy.model.state_dict()))
    ((_, done),) = collect(engine, places)
    assert done.tokens.tolist() == tokens
    assert done.finish_reason is FinishReason.STOP
    assert [version for version, _, _ in done.policy_versions] == [0, 8]
