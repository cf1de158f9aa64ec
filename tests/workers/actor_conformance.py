"""Conformance suite of actors, as tests that any backend can run.

Subclass, and override the fixture `make_actor`; on several ranks too, if the backend has them:

    class TestMine(ActorConformance):
        @pytest.fixture
        def make_actor(self):
            pool = ResourcePool("mine", SpawnExecutor([("0",), ("1",)]))
            yield lambda folder, setup: WorkerGroup(pool, partial(my_actor, folder, setup), process_group=True)
            pool.close()

Each test compares with a plain loop over the rows in one process: `PlainActor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column, build_algorithm, entropy, token_log_probs
from autoclave.config import GrpoPlusConfig, OptimizerConfig, TinyModelConfig
from autoclave.core import FaultError
from autoclave.models import Policy, build_tiny_policy, load_policy, save_model
from autoclave.workers.batch import Batch
from autoclave.workers.group import WorkerGroup

OPTIMIZER = OptimizerConfig(learning_rate=1e-3, decay="none", weight_decay=0.1, gradient_clip=0.5)


@dataclass(frozen=True, slots=True)
class Setup:
    """Arguments of an actor beside the folder of its policy. They must come to another process by pickle."""

    optimizer: OptimizerConfig = OPTIMIZER
    group_kl_limit: float = 0.01
    total_steps: int = 20
    temperature: float = 0.8
    micro_batch_tokens: int = 30

    @property
    def algorithm(self) -> Algorithm:
        """One that reads log-probs, entropies, and at the start of each step what whole groups have moved by."""
        return build_algorithm(GrpoPlusConfig(reading="introduction", group_kl_limit=self.group_kl_limit))


MakeActor = Callable[[Path, Setup], WorkerGroup[Any]]
"""From the folder of a policy in float32, in Hugging Face form, to a group with the methods of `ActorWorker`."""

RESPONSES = ([40, 41, 1], [77, 1], [5, 6, 7, 8, 9, 1], [50, 51, 52, 53], [60], [61, 62, 63], [4, 5, 6, 7, 8, 9, 10])


def sample_batch(minibatch: tuple[int, ...] = (0, 0, 0, 0, 1, 1, 3)) -> Batch:
    """Seven rollouts of uneven lengths in three groups, of minibatches that have four, two, no and one rows."""
    lengths = [len(response) for response in RESPONSES]
    draw = np.random.default_rng(0)
    minibatches = np.repeat(minibatch, lengths)
    per_token = np.array([1 / (minibatches == number).sum() for number in minibatches])
    return Batch.from_sequences(
        [(np.arange(2, 4 + row), np.array(response)) for row, response in enumerate(RESPONSES)],
        rows={"minibatch": np.array(minibatch), "group": np.array([0, 0, 0, 1, 1, 1, 2])},
        responses={
            "weights": per_token.astype(np.float32),
            "advantages": np.repeat([1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.0], lengths).astype(np.float32),
            "old_log_probs": draw.normal(-5, 0.3, sum(lengths)).astype(np.float32),
            "entropy_coefficient": np.full(sum(lengths), 0.01, dtype=np.float32),
        },
    )


class PlainActor:
    """The definition: one process, one row at a time, all of a step at once."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.model, self._setup = load_policy(folder, device="cpu").model, setup
        settings = setup.optimizer
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), settings.learning_rate, settings.betas, weight_decay=settings.weight_decay
        )

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies (N,) of the response tokens, with gradient."""
        found: list[tuple[Tensor, Tensor]] = []
        for row in range(len(batch)):
            ids = torch.from_numpy(batch.tokens[batch.offsets[row] : batch.offsets[row + 1]])
            prompt = int(batch.prompt_lengths[row])
            logits = self.model(input_ids=ids[None], use_cache=False).logits[0, prompt - 1 : -1]
            temperature = self._setup.temperature
            found.append(
                (
                    token_log_probs(logits, ids[prompt:], temperature=temperature),
                    entropy(logits, temperature=temperature),
                )
            )
        return torch.cat([pair[0] for pair in found]), torch.cat([pair[1] for pair in found])

    def update(self, batch: Batch, minibatches: int) -> list[float]:
        """One step for each minibatch that has rows; the norms of their gradients."""
        return [
            self._step(batch.select(rows))
            for rows in (batch.rows["minibatch"] == number for number in range(minibatches))
            if rows.any()
        ]

    def _step(self, batch: Batch) -> float:
        algorithm = self._setup.algorithm
        log_probs, entropies = self.scores(batch)
        columns = {name: torch.from_numpy(column) for name, column in {**batch.rows, **batch.responses}.items()}
        columns |= {Column.ROW: torch.from_numpy(batch.response_rows), Column.STEP_LOG_PROBS: log_probs.detach()}
        columns = algorithm.trust(columns) | {Column.LOG_PROBS: log_probs, Column.ENTROPY: entropies}
        self._optimizer.zero_grad()
        algorithm.loss(columns).total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._setup.optimizer.gradient_clip)
        self._optimizer.step()
        return norm.item()


class ActorConformance:
    """Requirements on every actor in float32."""

    tolerance = 1e-5
    """Of weights and log-probs, absolute."""

    @pytest.fixture
    def make_actor(self) -> MakeActor:
        raise NotImplementedError("override the fixture `make_actor`")

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Of a policy whose distributions are far from uniform."""
        shape = TinyModelConfig(hidden_size=30, layers=2, heads=3, vocabulary=300, context=64)
        policy = build_tiny_policy(shape, ["Print 3."], seed=0, device="cpu")
        with torch.no_grad():
            for weights in policy.model.parameters():
                weights.mul_(10 if weights.ndim == 2 else 1)
        path = tmp_path_factory.mktemp("policy")
        save_model(policy, path)
        return path

    # --- Log-probs -----------------------------------------------------------------------------------------------

    def test_log_probs_are_those_of_each_sequence_alone_in_the_order_of_the_rows(
        self, make_actor: MakeActor, folder: Path
    ):
        setup = Setup()
        actor, plain = make_actor(folder, setup), PlainActor(folder, setup)
        for batch in (sample_batch(), sample_batch().select(np.array([6])), sample_batch().select(np.zeros(0, int))):
            found = actor.log_probs(batch).result()
            expected = plain.scores(batch)[0].detach().numpy() if len(batch) else np.zeros(0)
            assert np.array_equal(found.tokens, batch.tokens)
            assert found.responses["old_log_probs"] == pytest.approx(expected, abs=self.tolerance)

    def test_log_probs_at_the_start_are_known_after_an_update_whoever_computes_them(
        self, make_actor: MakeActor, folder: Path
    ):
        actor, given = make_actor(folder, Setup()), sample_batch()
        expected = actor.log_probs(given).result().responses["old_log_probs"]
        without = {name: column for name, column in given.responses.items() if name != "old_log_probs"}
        batch = actor.old_log_probs(replace(given, responses=without)).result()
        actor.update(batch, 4).result()
        found = actor.with_log_probs(batch).result().responses["old_log_probs"]
        assert found == pytest.approx(expected, abs=self.tolerance)

    # --- Updates -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("micro_batch_tokens", [1, 30, 1 << 20])
    def test_an_update_does_not_depend_on_how_it_is_cut(
        self, make_actor: MakeActor, folder: Path, micro_batch_tokens: int
    ):
        setup = Setup(micro_batch_tokens=micro_batch_tokens)
        actor, plain = make_actor(folder, setup), PlainActor(folder, setup)
        batch, metrics = sample_batch(), {}
        for _ in range(4):  # of three optimizer steps each
            metrics, norms = actor.update(batch, 4).result(), plain.update(batch, 4)
            assert metrics["gradient_norm"] == pytest.approx(sum(norms) / 3, rel=1e-3)
            assert metrics["learning_rate"] == pytest.approx(1e-3)
        _assert_same(actor.export_weights().result(), plain.model.state_dict(), self.tolerance)

    def test_the_trust_region_counts_whole_groups(self, make_actor: MakeActor, folder: Path):
        tight, loose = Setup(group_kl_limit=1e-4), Setup(group_kl_limit=1e4)
        batch = sample_batch((0,) * 7)
        plains = [PlainActor(folder, setup) for setup in (tight, loose)]
        for plain in plains:
            plain.update(batch, 1)
        actor = make_actor(folder, tight)
        actor.update(batch, 1).result()
        _assert_same(actor.export_weights().result(), plains[0].model.state_dict(), self.tolerance)
        assert _difference(plains[0].model.state_dict(), plains[1].model.state_dict()) > 10 * self.tolerance

    def test_minibatches_without_rows_change_nothing(self, make_actor: MakeActor, folder: Path):
        actor = make_actor(folder, Setup())
        assert actor.update(sample_batch().select(np.zeros(0, int)), 2).result() == {}
        _assert_same(actor.export_weights().result(), load_policy(folder, device="cpu").model.state_dict(), 0.0)

    def test_metrics_are_those_of_the_whole_step(self, make_actor: MakeActor, folder: Path):
        batch = sample_batch((0,) * 7)
        gap = np.zeros_like(batch.responses["old_log_probs"])
        gap[4] = 0.25
        batch = batch.with_responses(sampler_log_probs=batch.responses["old_log_probs"] + gap)
        metrics = make_actor(folder, Setup()).update(batch, 1).result()
        plain = PlainActor(folder, Setup())
        assert metrics["entropy"] == pytest.approx(plain.scores(batch)[1].mean().item(), rel=1e-4)
        assert metrics["log_prob_mismatch"] == pytest.approx(0.25)
        assert {"loss", "gradient_norm", "learning_rate"} <= metrics.keys()
        assert all(math.isfinite(value) for value in metrics.values())

    # --- Numbers that are not finite -----------------------------------------------------------------------------

    def test_a_column_that_is_not_finite_is_named_and_leaves_an_actor_that_goes_on(
        self, make_actor: MakeActor, folder: Path
    ):
        actor = make_actor(folder, Setup())
        advantages = sample_batch().responses["advantages"].copy()
        advantages[0] = math.nan
        with pytest.raises(
            FaultError, match=r"before optimizer step 1: not finite: advantages.*weights were those of the start"
        ):
            actor.update(sample_batch().with_responses(advantages=advantages), 4).result()
        _assert_same(actor.export_weights().result(), load_policy(folder, device="cpu").model.state_dict(), 0.0)
        assert actor.update(sample_batch(), 4).result()

    # --- Weights and state ---------------------------------------------------------------------------------------

    def test_exported_weights_are_a_copy_under_the_names_of_the_library(self, make_actor: MakeActor, folder: Path):
        actor, policy = make_actor(folder, Setup()), load_policy(folder, device="cpu")
        actor.update(sample_batch(), 4).result()
        exported = actor.export_weights().result()
        before = {name: tensor.clone() for name, tensor in exported.items()}
        scores = actor.log_probs(sample_batch()).result().responses["old_log_probs"]
        actor.update(sample_batch(), 4).result()
        _assert_same(exported, before, 0.0)
        policy.model.load_state_dict(dict(exported))
        plain = _plain_on(policy, folder)
        assert scores == pytest.approx(plain.scores(sample_batch())[0].detach().numpy(), abs=self.tolerance)

    def test_saved_state_goes_on_as_if_nothing_had_happened(self, make_actor: MakeActor, folder: Path, tmp_path: Path):
        setup = Setup(optimizer=Setup().optimizer.model_copy(update={"decay": "linear"}))
        actor = make_actor(folder, setup)
        for _ in range(2):
            actor.update(sample_batch(), 4).result()
        actor.begin_save(tmp_path).result()
        metrics = actor.update(sample_batch(), 4).result()
        assert actor.finish_save(True).result()
        expected = actor.export_weights().result()
        resumed = make_actor(folder, setup)
        resumed.load(tmp_path).result()
        assert resumed.update(sample_batch(), 4).result() == pytest.approx(metrics, rel=1e-6)
        _assert_same(resumed.export_weights().result(), expected, 1e-7)


def _plain_on(policy: Policy, folder: Path) -> PlainActor:
    plain = PlainActor(folder, Setup())
    plain.model = policy.model
    return plain


def _assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name] - tensor).abs().max() <= tolerance, name


def _difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)
