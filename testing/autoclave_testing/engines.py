"""Conformance suite of sampler engines: test classes to subclass. Needs pytest; no other module imports this one.

Subclass `EngineConformance`, or `SamplingConformance` for an engine without `update_weights`, and override the fixture
`engine`. All tests of the class share one engine, and each begins with the same weights.

    class TestMine(EngineConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def engine(cls, policy_folder):
            engine = MyEngine(policy_folder)
            yield engine
            engine.close()

Tests compare with forward passes over whole sequences, without batches, padding or caches. Class attributes declare
what an engine does not do, such as `shares_prompts = False`.
"""

import copy
import itertools
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from autoclave.config import TinyModelConfig
from autoclave.core import Completion, FinishReason
from autoclave.models import Policy, build_tiny_policy, save_model
from autoclave.rollout.interface import Engine, Request, SamplingParameters, broken_rule

PROMPTS = ([2, 40, 41, 42, 3], [2, 77, 3], [2, *range(50, 71), 3])
"""Token ids of three prompts of different lengths."""

LONG_PROMPT = [2, *(40 + place % 60 for place in range(67)), 3]
"""Longer than two blocks of a paged cache."""

DEADLINE_S = 60.0
"""Seconds after which a missing response fails a test."""

_numbers = itertools.count()


def request(prompt: Sequence[int], *seed: int, **parameters: object) -> Request:
    """Return a request for one response to `prompt`, with this seed and these `SamplingParameters`."""
    return Request(np.array(prompt, dtype=np.int64), SamplingParameters(**parameters), seed)  # pyright: ignore


def build_policy() -> Policy:
    """Return a policy with tied embeddings, peaked distributions, and a head size that all attention kernels have."""
    shape = TinyModelConfig(hidden_size=64, layers=2, heads=2, vocabulary=300, context=128)
    policy = build_tiny_policy(shape, ["Print 3."], seed=0, device="cpu")
    with torch.no_grad():
        for weights in policy.model.parameters():
            weights.mul_(6 if weights.ndim == 2 else 1)
    return policy


def perturbed(policy: Policy, seed: int, share: float = 0.3) -> Policy:
    """Return a copy of `policy` with noise on each tensor, of `share` of the tensor's standard deviation."""
    changed, generator = copy.deepcopy(policy.model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in changed.parameters():
            deviation = weights.std() if weights.std() > 0 else weights.abs().mean()
            weights.add_(torch.randn(weights.shape, generator=generator) * deviation * share)
    return Policy(changed, policy.tokenizer)


def plain_log_probs(policy: Policy, completion: Completion, temperature: float = 1.0) -> np.ndarray:
    """(T,) log-probs of the response at `temperature`, by a forward pass over the whole sequence."""
    ids = torch.from_numpy(np.concatenate([completion.prompt_tokens, completion.tokens]))[None]
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0, len(completion.prompt_tokens) - 1 : -1]
    scores = torch.log_softmax(logits / temperature, -1)
    return scores.gather(1, torch.from_numpy(completion.tokens)[:, None])[:, 0].numpy()


def first_token_probabilities(policy: Policy, temperature: float) -> np.ndarray:
    """(V,) probabilities of the first response token to PROMPTS[0]."""
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1]
    return torch.softmax(logits / temperature, -1).numpy()


def add(engine: Engine, requests: Sequence[Request]) -> dict[int, int]:
    """Add all requests under new numbers. Return the index in `requests` by number."""
    numbered = {next(_numbers): request for request in requests}
    engine.add(numbered)
    return {number: place for place, number in enumerate(numbered)}


def collect(engine: Engine, places: dict[int, int], seconds: float = 0.02) -> list[tuple[int, Completion]]:
    """Step until all requests have ended. Return `(index, completion)` in the order in which they ended."""
    found: list[tuple[int, Completion]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < len(places):
        assert time.monotonic() < deadline, f"{len(places) - len(found)} responses are missing after {DEADLINE_S} s"
        found += [(places[number], completion) for number, completion in engine.step(seconds)]
    return found


def sample(engine: Engine, requests: Sequence[Request]) -> list[Completion]:
    """Add all requests and step until they have ended. Return the completions in the order of the requests."""
    found = dict(collect(engine, add(engine, requests)))
    assert len(found) == len(requests), "a request was answered twice"
    return [found[place] for place in range(len(requests))]


def step_until(engine: Engine, tokens: int) -> None:
    """Step until `tokens` more tokens have been sampled; no request may end before."""
    goal, deadline = engine.stats.sampled_tokens + tokens, time.monotonic() + DEADLINE_S
    while engine.stats.sampled_tokens < goal:
        assert time.monotonic() < deadline, "nothing is sampled"
        assert engine.step(0.0) == []


class SamplingConformance:
    """Requirements on every engine, in float32."""

    tolerance = 1e-4
    """Absolute tolerance of log-probs."""

    raw_with_top_p = True
    """True if log-probs are `raw` (before top-p) also for requests with top-p < 1."""

    shares_prompts = True
    """True if the engine computes a prompt once for several responses to it, and `stats.prompt_tokens` shows it."""

    in_lockstep = True
    """True if each decoding step samples one token of every running request, so that short responses end first."""

    end_temperature = 1.5
    """Temperature at which some, not all, responses of 60 tokens end with the end-of-sequence token."""

    num_responses = 64
    """Responses sampled at that temperature."""

    @pytest.fixture(scope="class")
    @classmethod
    def initial_policy(cls) -> Policy:
        """Return the policy in `policy_folder`."""
        return build_policy()

    @pytest.fixture(scope="class")
    @classmethod
    def policy_folder(cls, initial_policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the folder of the policy that the engine starts with, in Hugging Face form."""
        folder = tmp_path_factory.mktemp("policy")
        save_model(initial_policy, folder)
        return folder

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, policy_folder: Path) -> Generator[Engine]:
        raise NotImplementedError("override the fixture `engine`")

    @pytest.fixture
    def policy(self, initial_policy: Policy) -> Policy:
        """Return the policy whose weights the engine has."""
        return initial_policy

    def test_greedy_sampling_takes_the_most_likely_token(self, engine: Engine, policy: Policy):
        requests = [request(prompt, 0, temperature=0.0, max_new_tokens=24) for prompt in PROMPTS]
        for prompt, completion in zip(PROMPTS, sample(engine, requests), strict=True):
            expected = policy.model.generate(  # pyright: ignore[reportCallIssue]
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                do_sample=False,
                max_new_tokens=24,
            )
            assert completion.tokens.tolist() == expected[0, len(prompt) :].tolist()
            assert completion.log_probs == pytest.approx(plain_log_probs(policy, completion), abs=self.tolerance)

    def test_log_probs_are_those_of_a_plain_forward_pass(self, engine: Engine, policy: Policy):
        requests = [request(prompt, number, max_new_tokens=30) for number in range(6) for prompt in PROMPTS]
        for completion in sample(engine, requests):
            assert completion.log_prob_kind == "raw"
            assert completion.log_probs.dtype == np.float32
            assert completion.log_probs == pytest.approx(plain_log_probs(policy, completion), abs=self.tolerance)

    def test_log_probs_are_at_the_temperature_and_before_top_p(self, engine: Engine, policy: Policy):
        kinds = [(0.6, 1.0), (1.7, 1.0), (0.0, 1.0), (0.0, 0.5)]
        kinds += [(1.0, 0.5), (0.8, 0.9)] if self.raw_with_top_p else []
        requests = [
            request(prompt, place, temperature=temperature, top_p=top_p, max_new_tokens=20)
            for place, (temperature, top_p) in enumerate(kinds)
            for prompt in PROMPTS
        ]
        for asked, completion in zip(requests, sample(engine, requests), strict=True):
            expected = plain_log_probs(policy, completion, asked.parameters.temperature or 1.0)
            assert completion.log_prob_kind == "raw"
            assert completion.log_probs == pytest.approx(expected, abs=self.tolerance)

    def test_frequencies_of_tokens_match_their_probabilities(self, engine: Engine, policy: Policy):
        count, expected = 256, first_token_probabilities(policy, temperature=0.5)
        asked = [request(PROMPTS[0], number, temperature=0.5, max_new_tokens=1) for number in range(count)]
        found = sample(engine, asked)
        drawn = np.bincount([int(completion.tokens[0]) for completion in found], minlength=len(expected))
        frequent = expected * count >= 4
        deviations = (drawn - expected * count)[frequent] ** 2 / (expected * count)[frequent]
        assert frequent.sum() >= 5
        assert deviations.sum() < frequent.sum() + 5 * np.sqrt(2 * frequent.sum())  # of chi-square

    def test_top_p_never_samples_outside_of_the_nucleus(self, engine: Engine, policy: Policy):
        parameters = {"temperature": 0.5, "top_p": 0.4, "max_new_tokens": 1}
        requests = [request(PROMPTS[0], number, **parameters) for number in range(128)]
        shares = first_token_probabilities(policy, temperature=0.5)
        order = np.argsort(-shares)
        inside = order[: 1 + int(np.searchsorted(np.cumsum(shares[order]), 0.4))]
        found = [int(completion.tokens[0]) for completion in sample(engine, requests)]
        assert set(found) <= set(inside.tolist())
        assert len(set(found)) > 1

    def test_a_seed_gives_the_same_response_among_other_requests(self, engine: Engine, policy: Policy):
        asked = [request(PROMPTS[place % 3], 7, place, max_new_tokens=20) for place in range(6)]
        others = [request(PROMPTS[1], 8, place, max_new_tokens=9) for place in range(5)]
        first = sample(engine, asked)
        again = sample(engine, [*others, *asked[::-1]])[len(others) :][::-1]
        assert [done.tokens.tolist() for done in first] == [done.tokens.tolist() for done in again]

    def test_every_part_of_a_seed_counts(self, engine: Engine, policy: Policy):
        seeds = [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (1, 2), (3, 2, 1)]
        found = sample(engine, [request(PROMPTS[0], *seed, max_new_tokens=12) for seed in seeds])
        assert len({tuple(done.tokens.tolist()) for done in found}) == len(seeds)

    def test_the_end_token_ends_a_response_and_is_kept_as_a_token_but_not_as_text(self, engine: Engine, policy: Policy):
        requests = [
            request(PROMPTS[0], number, temperature=self.end_temperature, max_new_tokens=60)
            for number in range(self.num_responses)
        ]
        ended = [done for done in sample(engine, requests) if done.finish_reason is FinishReason.STOP]
        assert 0 < len(ended) < len(requests)
        for done in ended:
            assert done.tokens[-1] == policy.end_token
            assert policy.end_token not in done.tokens[:-1]
            assert done.text == policy.tokenizer.decode(done.tokens[:-1], skip_special_tokens=True)
            expected = plain_log_probs(policy, done, self.end_temperature)[-1]
            assert done.log_probs[-1] == pytest.approx(expected, abs=self.tolerance)

    def test_the_limit_of_new_tokens_cuts_a_response(self, engine: Engine, policy: Policy):
        limits = [1, 2, 7, 30]
        found = sample(engine, [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=limit) for limit in limits])
        assert [len(done.tokens) for done in found] == limits
        assert all(done.finish_reason is FinishReason.LENGTH for done in found)
        assert all(len(done.log_probs) == len(done.tokens) for done in found)

    def test_a_stop_string_cuts_the_text_and_keeps_the_tokens(self, engine: Engine, policy: Policy):
        (whole,) = sample(engine, [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=30)])
        stop, tokens = some_stop(policy, whole)
        limits = [30, len(tokens)]  # also where it is complete with the last token that may be sampled
        asked = [
            request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=limit, stops=("\0never", stop)) for limit in limits
        ]
        for done in sample(engine, asked):
            assert done.finish_reason is FinishReason.STOP
            assert done.tokens.tolist() == tokens
            assert stop not in done.text
            assert (
                done.text + stop == policy.tokenizer.decode(tokens, skip_special_tokens=True)[: len(done.text + stop)]
            )

    def test_a_stop_string_that_does_not_come_changes_nothing(self, engine: Engine, policy: Policy):
        asked = [request(PROMPTS[0], 3, max_new_tokens=12, stops=stops) for stops in ((), ("\0never",))]
        free, stopped = sample(engine, asked)
        assert free.tokens.tolist() == stopped.tokens.tolist()
        assert free.text == stopped.text

    def test_completions_are_returned_when_they_end(self, engine: Engine, policy: Policy):
        limits = [90, 3, 25, 11, 18]
        asked = [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=limit) for limit in limits]
        found = [len(done.tokens) for _, done in collect(engine, add(engine, asked), seconds=0.0)]
        assert (found if self.in_lockstep else sorted(found)) == sorted(limits)

    def test_more_requests_than_fit_a_batch_are_all_completed(self, engine: Engine, policy: Policy):
        asked = [request(PROMPTS[number % 3], number, max_new_tokens=1 + number % 5) for number in range(100)]
        for wanted, done in zip(asked, sample(engine, asked), strict=True):
            assert done.prompt_tokens.tolist() == wanted.prompt_tokens.tolist()
            assert 1 <= len(done.tokens) <= wanted.parameters.max_new_tokens
            assert done.submitted_at <= done.finished_at

    def test_a_step_without_requests_returns_at_once(self, engine: Engine, policy: Policy):
        started = time.monotonic()
        assert engine.step(DEADLINE_S) == []
        assert time.monotonic() - started < DEADLINE_S / 2

    def test_requests_can_be_added_while_others_are_sampled(self, engine: Engine, policy: Policy):
        places = add(engine, [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=120)])
        step_until(engine, 3)
        places |= dict.fromkeys(add(engine, [request(PROMPTS[1], 0, temperature=0.0, max_new_tokens=3)]), 1)
        found = dict(collect(engine, places))
        assert [len(found[place].tokens) for place in (0, 1)] == [120, 3]

    def test_a_prompt_of_several_responses_is_computed_once(self, engine: Engine, policy: Policy):
        if not self.shares_prompts:
            return
        before = engine.stats
        sample(engine, [request(LONG_PROMPT, number, max_new_tokens=3) for number in range(8)])
        assert len(LONG_PROMPT) <= engine.stats.prompt_tokens - before.prompt_tokens < 2 * len(LONG_PROMPT)

    def test_stats_count_requests_and_tokens(self, engine: Engine, policy: Policy):
        before = engine.stats
        assert (before.running, before.waiting) == (0, 0)
        places = add(engine, [request(PROMPTS[0], 0, temperature=0.0, max_new_tokens=20) for _ in range(3)])
        assert engine.stats.running + engine.stats.waiting == 3
        step_until(engine, 3)
        assert engine.stats.running == 3
        found = collect(engine, places)
        after = engine.stats
        assert (after.running, after.waiting) == (0, 0)
        assert after.sampled_tokens - before.sampled_tokens == sum(len(done.tokens) for _, done in found)


class EngineConformance(SamplingConformance):
    """Requirements on every engine that loads weights."""

    @pytest.fixture
    def policy(self, initial_policy: Policy, engine: Engine) -> Policy:
        """Return the policy whose weights the engine has."""
        engine.update_weights(next(_numbers), self.weights(initial_policy))
        return initial_policy

    @staticmethod
    def weights(policy: Policy) -> dict[str, Tensor]:
        """Return the weights as a trainer passes them to `update_weights`."""
        return {name: tensor.detach() for name, tensor in policy.model.state_dict().items()}

    def test_new_weights_are_used_and_their_version_recorded(self, engine: Engine, policy: Policy):
        changed, version = perturbed(policy, seed=1), next(_numbers)
        engine.update_weights(version, self.weights(changed))
        asked = [request(prompt, number, max_new_tokens=30) for number in range(4) for prompt in PROMPTS]
        for done in sample(engine, asked):
            assert done.policy_versions == ((version, 0, len(done.tokens)),)
            assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=self.tolerance)

    def test_a_response_continues_with_new_weights_and_records_the_version_of_each_token(
        self, engine: Engine, policy: Policy
    ):
        first, second = next(_numbers), next(_numbers)
        changed = perturbed(policy, seed=2)
        engine.update_weights(first, self.weights(policy))
        places = add(engine, [request(LONG_PROMPT, number, max_new_tokens=40) for number in range(4)])
        step_until(engine, 12)
        engine.update_weights(second, self.weights(changed))
        found = [done for _, done in collect(engine, places)]
        assert any(len(done.policy_versions) == 2 for done in found)
        for done in found:
            assert_ranges(done, [first, second])
            for version, start, stop in done.policy_versions:
                scores = plain_log_probs(policy if version == first else changed, done)
                assert done.log_probs[start:stop] == pytest.approx(scores[start:stop], abs=self.tolerance)

    def test_a_waiting_request_is_sampled_with_the_weights_of_its_first_token(self, engine: Engine, policy: Policy):
        version, changed = next(_numbers), perturbed(policy, seed=3)
        places = add(engine, [request(PROMPTS[0], 0, max_new_tokens=10)])
        engine.update_weights(version, self.weights(changed))
        ((_, done),) = collect(engine, places)
        assert done.policy_versions == ((version, 0, len(done.tokens)),)
        assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=self.tolerance)

    def test_caches_of_old_weights_are_not_used(self, engine: Engine, policy: Policy):
        sample(engine, [request(LONG_PROMPT, 0, max_new_tokens=2)])
        changed = perturbed(policy, seed=4)
        engine.update_weights(next(_numbers), self.weights(changed))
        (done,) = sample(engine, [request(LONG_PROMPT, 0, max_new_tokens=20)])
        assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=self.tolerance)

    def test_a_tied_tensor_may_be_missing(self, engine: Engine, policy: Policy):
        changed = perturbed(policy, seed=5)
        weights = {name: tensor for name, tensor in self.weights(changed).items() if name != "lm_head.weight"}
        assert len(weights) < len(self.weights(changed))
        engine.update_weights(next(_numbers), weights)
        (done,) = sample(engine, [request(PROMPTS[2], 0, max_new_tokens=30)])
        assert done.log_probs == pytest.approx(plain_log_probs(changed, done), abs=self.tolerance)

    def test_an_engine_does_not_write_to_the_weights_it_was_given(self, engine: Engine, policy: Policy):
        first, second = (self.weights(perturbed(policy, seed=seed)) for seed in (6, 7))
        before = copy.deepcopy(dict(first)), copy.deepcopy(dict(second))
        for weights in (first, second):
            engine.update_weights(next(_numbers), weights)
            sample(engine, [request(PROMPTS[0], 0, max_new_tokens=20)])
        for given, expected in zip((first, second), before, strict=True):
            assert all(torch.equal(given[name], tensor) for name, tensor in expected.items())


def some_stop(policy: Policy, whole: Completion) -> tuple[str, list[int]]:
    """Return a stop string in the text of `whole`, longer than a token, and the tokens up to its first occurrence."""
    tokens = whole.tokens.tolist()

    def said(tokens: list[int]) -> str:
        return str(policy.tokenizer.decode(tokens, skip_special_tokens=True))

    for start in range(3, len(tokens) - 1):
        stop = said(tokens[start : start + 2])
        if not stop.isascii() or len(stop) < 2 or stop not in said(tokens):
            continue
        end = next(end for end in range(1, len(tokens) + 1) if stop in said(tokens[:end]))
        if end < len(tokens):
            return stop, tokens[:end]
    raise AssertionError(f"no usable stop in {said(tokens)!r}")


def assert_ranges(done: Completion, versions: Sequence[int]) -> None:
    """Assert that the version ranges of `done` cover each token once, with some of `versions` in this order."""
    assert broken_rule(done, max(versions)) is None
    found = [version for version, _, _ in done.policy_versions]
    assert found == [version for version in versions if version in found]
