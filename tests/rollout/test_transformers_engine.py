"""Sampling with a Transformers model: the same tokens and log-probs as the plain model gives, in any batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import Completion, FinishReason
from autoclave.models import Policy, encode_prompt, load_policy
from autoclave.rollout import Request, transformers_engine
from autoclave.rollout.interface import uniforms
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave_testing.engines import EngineConformance
from tests.training_parts import plain_log_probs, reciting_policy, request, sample_all, tiny_policy

PROMPTS = ([2, 40, 41, 42, 3], [2, 77, 3], [2, *range(50, 71), 3])
"""Of different lengths, in the form of the chat template."""


def generate(policy: Policy, requests: list[Request], batch_size: int = 64) -> list[Completion]:
    """The completions in the order of the requests."""
    return [done for _, done in sorted(in_order_of_delivery(policy, requests, batch_size), key=lambda pair: pair[0])]


def in_order_of_delivery(policy: Policy, requests: list[Request], batch_size: int = 64) -> list[tuple[int, Completion]]:
    return sample_all(TransformersEngine(policy, batch_size=batch_size), requests)


def mixed_requests(**parameters: object) -> list[Request]:
    """Four samples of each prompt, with limits that make rows leave the batch one after the other."""
    return [
        request(prompt, index, sample, max_new_tokens=3 + 5 * sample + 2 * index, **parameters)
        for sample in range(4)
        for index, prompt in enumerate(PROMPTS)
    ]


# --- Against the plain model ---------------------------------------------------------------------------------------


def test_greedy_decoding_is_that_of_transformers():
    policy = tiny_policy()
    requests = [request(prompt, 0, temperature=0.0, max_new_tokens=24) for prompt in PROMPTS]
    completions = generate(policy, requests)
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        expected = policy.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            do_sample=False,
            max_new_tokens=24,
        )
        assert completion.tokens.tolist() == expected[0, len(prompt) :].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_log_probs_are_those_of_a_plain_forward_pass_at_the_temperature(temperature):
    policy = tiny_policy()
    for completion in generate(policy, mixed_requests(temperature=temperature)):
        expected = plain_log_probs(policy, completion.prompt_tokens, completion.tokens, temperature)
        assert completion.log_probs == pytest.approx(expected.detach().numpy(), abs=1e-5)


def test_greedy_log_probs_are_those_at_temperature_1():
    policy = tiny_policy()
    (completion,) = generate(policy, [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=6)])
    expected = plain_log_probs(policy, completion.prompt_tokens, completion.tokens)
    assert completion.log_probs == pytest.approx(expected.detach().numpy(), abs=1e-5)


def test_log_probs_are_those_before_the_nucleus_is_cut():
    policy = tiny_policy()
    (completion,) = generate(policy, [request(PROMPTS[0], 0, top_p=0.3, max_new_tokens=6)])
    expected = plain_log_probs(policy, completion.prompt_tokens, completion.tokens)
    assert completion.log_prob_kind == "raw"
    assert completion.log_probs == pytest.approx(expected.detach().numpy(), abs=1e-5)


# --- A response depends on its request alone -----------------------------------------------------------------------


def tokens_of(completions: list[Completion]) -> list[list[int]]:
    return [completion.tokens.tolist() for completion in completions]


def test_a_request_alone_gives_the_response_that_it_gives_in_a_batch():
    requests = mixed_requests()
    together = generate(tiny_policy(), requests)
    alone = [generate(tiny_policy(), [single])[0] for single in requests]
    assert tokens_of(together) == tokens_of(alone)


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_neither_order_nor_size_of_the_batch_changes_a_response(batch_size):
    requests = mixed_requests(top_p=0.9)
    backwards = generate(tiny_policy(), requests[::-1], batch_size)
    assert tokens_of(generate(tiny_policy(), requests)) == tokens_of(backwards[::-1])


def test_a_neighbour_with_a_nucleus_does_not_cut_the_tail_of_a_request_without_one(monkeypatch):
    monkeypatch.setattr(transformers_engine, "uniforms", lambda seed, count: np.full(count, np.nextafter(1.0, 0.0)))
    free = [request([2, token, 3], 0, temperature=0.2, max_new_tokens=1) for token in range(4, 64)]
    cut = [request([3], 0, top_p=0.5, max_new_tokens=1)]
    assert tokens_of(generate(tiny_policy(), free)) == tokens_of(generate(tiny_policy(), free + cut))[:-1]


def test_different_seeds_give_different_responses():
    requests = [request(PROMPTS[0], number, max_new_tokens=8) for number in range(8)]
    assert len({tuple(tokens) for tokens in tokens_of(generate(tiny_policy(), requests))}) == 8


# --- The distribution ----------------------------------------------------------------------------------------------


def first_token_probabilities(policy: Policy, temperature: float = 1.0) -> np.ndarray:
    logits = policy.model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1]
    return torch.softmax(logits.double() / temperature, -1).detach().numpy()


def nucleus(probabilities: np.ndarray, top_p: float) -> np.ndarray:
    """The smallest set of most likely tokens with at least `top_p`, from the definition."""
    order = np.argsort(-probabilities, kind="stable")
    return order[: 1 + int(np.searchsorted(np.cumsum(probabilities[order]), top_p))]


def first_tokens(policy: Policy, count: int, **parameters: object) -> list[int]:
    requests = [request(PROMPTS[0], number, max_new_tokens=1, **parameters) for number in range(count)]
    return [int(completion.tokens[0]) for completion in generate(policy, requests, batch_size=4096)]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.7)])
def test_tokens_are_as_frequent_as_they_are_likely(temperature, top_p):
    policy, count = tiny_policy(), 8192
    expected = first_token_probabilities(policy, temperature)
    if top_p < 1:
        inside = np.isin(np.arange(len(expected)), nucleus(expected, top_p))
        expected = np.where(inside, expected, 0) / expected[inside].sum()
    drawn = Counter(first_tokens(policy, count, temperature=temperature, top_p=top_p))

    frequent = np.flatnonzero(expected * count >= 8)
    observed = np.array([drawn[token] for token in frequent])
    rest = count - observed.sum(), count * (1 - expected[frequent].sum())
    deviations = (observed - expected[frequent] * count) ** 2 / (expected[frequent] * count)
    chi_square = deviations.sum() + (rest[0] - rest[1]) ** 2 / max(rest[1], 1)
    degrees = len(frequent)
    assert degrees > 10
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)  # four standard deviations of chi-square


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9])
def test_top_p_never_draws_outside_of_the_nucleus(top_p):
    policy = tiny_policy()
    allowed = set(nucleus(first_token_probabilities(policy), top_p).tolist())
    assert set(first_tokens(policy, 2048, top_p=top_p)) <= allowed


@pytest.mark.parametrize("top_p", [0.5, 1.0])
def test_the_largest_random_number_stays_inside_of_the_nucleus(top_p, monkeypatch):
    monkeypatch.setattr(transformers_engine, "uniforms", lambda seed, count: np.full(count, np.nextafter(1.0, 0.0)))
    policy = tiny_policy()
    allowed = set(nucleus(first_token_probabilities(policy), top_p).tolist())
    assert set(first_tokens(policy, 1, top_p=top_p)) <= allowed


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 20))
def test_asking_for_more_random_numbers_does_not_change_the_first(seed, count, more):
    first = uniforms(tuple(seed), count)
    assert first.tolist() == uniforms(tuple(seed), count + more)[:count].tolist()
    assert ((first >= 0) & (first < 1)).all()


# --- How a response ends -------------------------------------------------------------------------------------------


def ask(policy: Policy, **parameters: object) -> Completion:
    prompt = encode_prompt(policy.tokenizer, [{"role": "user", "content": "Speak."}])
    return generate(policy, [request(prompt, 0, temperature=0.0, **parameters)])[0]


def test_the_end_token_ends_a_response_and_is_kept_as_a_token_but_not_as_text():
    policy = reciting_policy("abcdefg")
    completion = ask(policy, max_new_tokens=50)
    assert completion.text == "abcdefg"
    assert completion.finish_reason is FinishReason.STOP
    assert completion.tokens.tolist() == [*policy.tokenizer.encode("abcdefg"), policy.end_token]


def test_the_limit_of_new_tokens_cuts_a_response():
    completion = ask(reciting_policy("abcdefg"), max_new_tokens=3)
    assert (completion.text, completion.finish_reason) == ("abc", FinishReason.LENGTH)
    assert len(completion.tokens) == len(completion.log_probs) == 3


def test_an_end_token_at_the_limit_is_a_stop():
    assert ask(reciting_policy("abc"), max_new_tokens=4).finish_reason is FinishReason.STOP


def test_a_stop_string_cuts_the_text_and_ends_the_response():
    policy = reciting_policy("abcdefg")
    completion = ask(policy, max_new_tokens=50, stops=("xyz", "de"))
    assert (completion.text, completion.finish_reason) == ("abc", FinishReason.STOP)
    assert policy.tokenizer.decode(completion.tokens) == "abcde"  # what was sampled is trained on, the stop included


def test_the_first_of_two_stop_strings_cuts():
    assert ask(reciting_policy("abcdefg"), stops=("cd", "bcd")).text == "a"


def test_a_stop_string_of_many_bytes_is_found():
    policy = reciting_policy("ab\xe9中\U0001f600cd")
    completion = ask(policy, stops=("\xe9中\U0001f600",))  # 3 characters, 9 bytes, 9 tokens
    assert (completion.text, completion.finish_reason) == ("ab", FinishReason.STOP)


def test_a_stop_string_completed_at_the_limit_is_a_stop():
    completion = ask(reciting_policy("abcdefg"), max_new_tokens=3, stops=("c",))
    assert (completion.text, completion.finish_reason) == ("ab", FinishReason.STOP)


def test_every_request_has_its_own_limit_and_stops():
    policy = reciting_policy("abcdefg")
    prompt = [3]
    requests = [
        request(prompt, 0, temperature=0.0, max_new_tokens=2),
        request(prompt, 1, temperature=0.0, max_new_tokens=50),
        request(prompt, 2, temperature=0.0, max_new_tokens=50, stops=("c",)),
    ]
    assert [completion.text for completion in generate(policy, requests)] == ["ab", "abcdefg", "ab"]


def test_no_request_gives_no_response():
    assert generate(tiny_policy(), []) == []


# --- Delivery and weights ------------------------------------------------------------------------------------------


def test_completions_are_delivered_as_soon_as_they_are_done():
    delivered = in_order_of_delivery(tiny_policy(), mixed_requests())
    lengths = [len(completion.tokens) for _, completion in delivered]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 5
    assert sorted(index for index, _ in delivered) == list(range(12))


def test_a_completion_carries_its_prompt_and_its_times():
    first, *_ = generate(tiny_policy(), mixed_requests())
    assert first.prompt_tokens.tolist() == list(PROMPTS[0])
    assert first.submitted_at <= first.finished_at


def test_new_weights_change_what_is_sampled_and_how_it_is_stamped():
    engine = TransformersEngine(reciting_policy("abc"), batch_size=4)
    asked = [request([3], 0, temperature=0.0)]
    ((_, before),) = sample_all(engine, asked)
    engine.update_weights(7, reciting_policy("xyz!").model.state_dict())
    ((_, after),) = sample_all(engine, asked)
    assert [before.text, after.text] == ["abc", "xyz!"]
    assert [before.policy_versions, after.policy_versions] == [((0, 0, 4),), ((7, 0, 5),)]


def test_an_engine_computes_with_the_weights_that_it_is_given_themselves():
    policy, trained = reciting_policy("abc"), reciting_policy("xyz").model
    engine = TransformersEngine(policy, batch_size=4)
    engine.update_weights(1, trained.state_dict())
    ((_, said),) = sample_all(engine, [request([3], 0, temperature=0.0)])
    assert said.text == "xyz"
    ours, theirs = (model.get_output_embeddings().weight for model in (policy.model, trained))
    assert ours.data_ptr() == theirs.data_ptr()


# --- While it samples ----------------------------------------------------------------------------------------------


def step_until(engine: TransformersEngine, tokens: int) -> list[tuple[int, Completion]]:
    """Sample at least so many tokens; what was done by then."""
    done: list[tuple[int, Completion]] = []
    while engine.stats.sampled_tokens < tokens:
        done += engine.step(0.0)
    return done


def test_a_request_goes_on_with_new_weights_and_says_which_token_is_whose():
    first, second = tiny_policy(seed=1), tiny_policy(seed=2)
    engine = TransformersEngine(tiny_policy(seed=1), batch_size=4)
    asked = [request(prompt, 0, max_new_tokens=12) for prompt in PROMPTS]
    engine.add(dict(enumerate(asked)))
    done = step_until(engine, 15)
    engine.update_weights(3, second.model.state_dict())
    done += step_until(engine, 15 + 6)
    engine.update_weights(4, first.model.state_dict())
    done += engine.step(1e9)
    for _, completion in done:
        versions = completion.policy_versions
        assert [start for _, start, _ in versions] == [0, *(stop for *_, stop in versions[:-1])]
        assert versions[-1][2] == len(completion.tokens)
        for version, start, stop in versions:
            policy = second if version == 3 else first
            expected = plain_log_probs(policy, completion.prompt_tokens, completion.tokens).detach().numpy()
            assert completion.log_probs[start:stop] == pytest.approx(expected[start:stop], abs=1e-5)
    assert {version for _, c in done for version, *_ in c.policy_versions} == {0, 3, 4}


def test_places_that_become_free_are_taken_by_those_that_wait():
    engine = TransformersEngine(tiny_policy(), batch_size=4)
    engine.add({number: request(PROMPTS[0], number, max_new_tokens=2 + 5 * (number % 4)) for number in range(12)})
    running: list[int] = []
    done: list[tuple[int, Completion]] = []
    while engine.stats.running or engine.stats.waiting:
        done += engine.step(0.0)
        running.append(engine.stats.running)
    assert len(done) == 12
    assert max(running) <= 4
    assert len(running) < 3 * 17  # what three batches would take, one after the other


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_comes_and_goes_every_token_has_the_log_prob_of_a_plain_forward_pass(data):
    policy = tiny_policy()
    engine = TransformersEngine(tiny_policy(), batch_size=data.draw(st.integers(1, 6)), mixes_batches=True)
    done: list[tuple[int, Completion]] = []
    number = 0
    for _ in range(data.draw(st.integers(1, 5))):
        limits = data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=6))
        wave = {
            number + i: request(PROMPTS[limit % 3], number + i, max_new_tokens=limit) for i, limit in enumerate(limits)
        }
        number += len(wave)
        engine.add(wave)
        for _ in range(data.draw(st.integers(0, 6))):
            done += engine.step(0.0)
    done += engine.step(1e9)
    assert sorted(found for found, _ in done) == list(range(number))
    for _, completion in done:
        expected = plain_log_probs(policy, completion.prompt_tokens, completion.tokens).detach().numpy()
        assert completion.log_probs == pytest.approx(expected, abs=1e-5)


def test_requests_of_two_waves_are_not_computed_together_unless_that_is_asked_for():
    def most_running(mixes_batches: bool) -> int:
        engine = TransformersEngine(tiny_policy(), batch_size=8, mixes_batches=mixes_batches)
        for wave in range(2):
            engine.add({2 * wave + n: request(PROMPTS[0], n, max_new_tokens=5) for n in range(2)})
        engine.step(0.0)
        return engine.stats.running

    assert (most_running(False), most_running(True)) == (2, 4)


# --- What holds for every engine -----------------------------------------------------------------------------------


class TestConformance(EngineConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, policy_folder: Path) -> TransformersEngine:
        return TransformersEngine(load_policy(policy_folder, device="cpu"), batch_size=16, mixes_batches=True)
