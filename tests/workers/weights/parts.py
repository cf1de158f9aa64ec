"""A trainer and a sampler around tiny policies, where processes of their own can import them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autoclave.config import LoraConfig, TrainerConfig
from autoclave.core import Completion, FinishReason
from autoclave.models import Digest, Policy, WeightViews, digests, with_adapter
from autoclave.rollout import Request
from autoclave.workers import Dispatch, WorkerGroup, register
from autoclave.workers.batch import Batch
from autoclave.workers.trainer import sources
from autoclave.workers.trainer.peers import this_rank
from autoclave.workers.trainer.publishing import SendsWeights
from autoclave.workers.trainer.scoring import Scoring, log_probs_of
from autoclave.workers.trainer.sharding import hold
from autoclave.workers.weights.broadcast import BroadcastGroup
from autoclave.workers.weights.buffer_descriptor import Form
from autoclave.workers.weights.publisher import Publisher
from autoclave.workers.weights.receiving import ReceivesWeights
from autoclave.workers.weights.routes import Endpoint
from tests.training_parts import tiny_policy

CPU = torch.device("cpu")


class Trainer(SendsWeights):
    """Its weights change at random, as if it learnt."""

    def __init__(
        self,
        *,
        lora: bool = False,
        dtype: torch.dtype = torch.float32,
        gpu: str = "",
        trainer: TrainerConfig | None = None,
    ) -> None:
        self._model = tiny_policy(dtype=dtype).model
        self._gpu = gpu
        if lora:
            with_adapter(self._model, LoraConfig(rank=2), seed=0)
        settings = trainer or TrainerConfig()
        hold(self._model, settings, CPU)
        self._scoring = Scoring.of(self._model, settings, CPU, temperature=1.0, micro_batch_tokens=512)

    @register(Dispatch.ONE_TO_ALL)
    def become(self, options: dict[str, Any]) -> None:
        """Another one, in the same process."""
        self._sender = self._group = None
        self.__init__(**options)

    @register(Dispatch.ONE_TO_ALL)
    def survey_weights(self, form: Form) -> tuple[Endpoint, bool]:
        endpoint, is_own = super().survey_weights(form)
        return replace(endpoint, gpu=self._gpu), is_own

    @register(Dispatch.ONE_TO_ALL)
    @torch.no_grad()
    def learn(self, seed: int) -> None:
        """Change all weights that learn, by a third of what they are, on every rank the same."""
        generator = torch.Generator().manual_seed(seed)
        for weights in self._model.parameters():
            if weights.requires_grad:
                change = torch.randn(weights.shape, generator=generator)
                spread = sources.whole(weights).float().std()
                own = sources._own_rows(weights)
                part = change if own is None or own == sources.ALL else change[own]
                sources._local(weights).add_((0.3 * (spread + 0.01) * part).to(weights.dtype))

    @register(Dispatch.ONE_TO_ALL)
    def plain_copy(self) -> dict[str, Tensor]:
        """What ought to be published."""
        found = sources.gathered_weights(sources.sources_of(self._model))
        return {name: copy for names, tensor in found for copy in [tensor.clone()] for name in names}

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        return batch.with_responses(old_log_probs=log_probs_of(self._model, batch, self._scoring))

    @register(Dispatch.ONE_TO_ALL)
    def leave_out(self, number: int, rank: int = 0) -> None:
        """Do not write the weight of this number, on one rank, in the next publish and all after it."""
        numbers, write = count(), sources.copy
        if this_rank() == rank:
            sources.copy = lambda tensor, place: None if next(numbers) == number else write(tensor, place)
        self._opened()._adjacent = None  # one weight after the other

    @register(Dispatch.ONE_TO_ALL)
    def lose_the_network(self) -> None:
        """Fail in each broadcast from now on."""

        def broadcast(group: BroadcastGroup) -> None:
            raise ConnectionError("network is unreachable")

        self._opened().broadcast = broadcast

    @register(Dispatch.ONE_TO_ALL)
    def die_while_writing(self, weights: int) -> None:
        """Be killed with -9 after so many weights of the next write."""
        left = iter(range(weights))
        write = sources.copy

        def copy_or_die(tensor: Tensor, place: Tensor) -> None:
            if next(left, None) is None and this_rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            write(tensor, place)

        sources.copy = copy_or_die
        self._opened()._adjacent = None  # one weight after the other


class ViewingEngine:
    """What publishes need of an engine: computes with views of the weights that it is given."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version, self._views = policy, 0, WeightViews(policy.model)

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        self._views.take(weights)
        self.version = version

    def weight_digests(self) -> dict[str, Digest]:
        return digests(self.policy.model.state_dict())


class LeavingOut(ViewingEngine):
    """Keeps one matrix of those that it began with."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        own = self.policy.model.get_parameter("model.layers.1.self_attn.v_proj.weight")
        before = own.detach().clone()
        super().update_weights(version, weights)
        if version > 1:
            own.data = before


class SilentEngine(ViewingEngine):
    """Cannot report its weights."""

    weight_digests = None


class PackingEngine(SilentEngine):
    """Keeps a packed copy of the output embedding, and forgets to pack it again; or leaves out a layer."""

    def __init__(self, policy: Policy, stale: str) -> None:
        super().__init__(policy)
        self._stale = stale
        self._packed = self._kept()

    def _kept(self) -> Tensor:
        return self.policy.model.get_parameter(self._stale).detach().clone()

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        super().update_weights(version, weights)
        if self._stale == "lm_head.weight":  # what is tied looks renewed by name
            self.policy.model.lm_head.weight = torch.nn.Parameter(self._packed)
            self.policy.model.config.tie_word_embeddings = False
        else:
            self.policy.model.get_parameter(self._stale).data = self._packed


class SleepingEngine(SilentEngine):
    """Says that it has new weights, and has not."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        self.version = version


class OldStamps(ViewingEngine):
    """Takes weights, and goes on stamping tokens with the version before."""

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        super().update_weights(version, weights)
        self.version = version - 1


class SamplerWorker(ReceivesWeights):
    """An engine that can say what it holds; `stale` names a weight that it does not renew."""

    def __init__(
        self,
        *,
        seed: int = 1,
        dtype: torch.dtype = torch.float32,
        gpu: str = "",
        host: str = "",
        engine: Any = ViewingEngine,
        stale: str = "",
    ) -> None:
        policy = tiny_policy(seed, dtype=dtype)
        self._engine = PackingEngine(policy, stale) if stale else engine(policy)
        self._gpu, self._host = gpu, host

    @register(Dispatch.ONE_TO_ALL)
    def become(self, options: dict[str, Any]) -> None:
        """Another one, in the same process."""
        self._receiver = self._broadcast = None
        self.__init__(**options)

    @register(Dispatch.ALL_TO_LIST)
    def weights_endpoint(self) -> Endpoint:
        endpoint = super().weights_endpoint()
        return replace(endpoint, gpu=self._gpu, host=self._host or endpoint.host)

    @register(Dispatch.ONE_TO_ALL)
    def held(self) -> tuple[int, dict[str, Tensor]]:
        """Its version, and a copy of its weights."""
        state = self._engine.policy.model.state_dict()
        return self._engine.version, {name: tensor.clone() for name, tensor in state.items()}

    @register(Dispatch.ONE_TO_ALL)
    def shrink(self) -> None:
        """Become a model of another shape."""
        self._engine.policy.model.model.norm.weight = torch.nn.Parameter(torch.ones(7))

    @register(Dispatch.ONE_TO_ALL)
    def open_files(self) -> int:
        return len(os.listdir("/proc/self/fd"))

    @register(Dispatch.ONE_TO_ALL)
    def mappings(self) -> int:
        with open("/proc/self/maps") as lines:
            return sum("autoclave-weights" in line for line in lines)

    @register(Dispatch.ONE_TO_ALL)
    @torch.inference_mode()
    def answer(self, requests: Sequence[Request]) -> list[Completion]:
        """The likeliest tokens, one after the other, by whole forward passes."""
        return [self._completion(request) for request in requests]

    def _completion(self, request: Request) -> Completion:
        ids = torch.from_numpy(request.prompt_tokens)
        found: list[float] = []
        for _ in range(request.parameters.max_new_tokens):
            scores = torch.log_softmax(self._engine.policy.model(input_ids=ids[None]).logits[0, -1].float(), -1)
            token = int(scores.argmax())
            found.append(float(scores[token]))
            ids = torch.cat([ids, torch.tensor([token])])
        tokens = ids[len(request.prompt_tokens) :].numpy()
        return Completion(
            prompt_tokens=request.prompt_tokens,
            tokens=tokens,
            log_probs=np.array(found, dtype=np.float32),
            log_prob_kind="raw",
            finish_reason=FinishReason.LENGTH,
            text="",
            policy_versions=((self._engine.version, 0, len(tokens)),),
            submitted_at=0.0,
            finished_at=0.0,
        )


def called(group: WorkerGroup) -> Callable[..., Any]:
    """How a publisher calls the workers of a group; see `WeightSource`."""
    return lambda method, *arguments: getattr(group, method)(*arguments).result(100)


def begin(publisher: Publisher, version: int, samplers: Mapping[str, WorkerGroup]) -> None:
    """Publish to these samplers first."""
    publisher.begin(version, list(samplers.values()))
    deliver(publisher, samplers)


def publish(publisher: Publisher, version: int, samplers: Mapping[str, WorkerGroup]) -> None:
    """Publish to these samplers."""
    publisher.write(version)
    deliver(publisher, samplers)


def deliver(publisher: Publisher, samplers: Mapping[str, WorkerGroup]) -> None:
    """Have all take over what is published, at once: members of a broadcast wait for each other."""
    with ThreadPoolExecutor(max(1, len(samplers))) as threads:
        taken = [threads.submit(publisher.deliver, group, called(group)) for group in samplers.values()]
        assert [each.result() for each in taken] == [publisher.version] * len(samplers)


class Asked:
    """Samplers that can be asked one by one."""

    def __init__(self, groups: Mapping[str, WorkerGroup[SamplerWorker]]) -> None:
        self._groups = groups

    def submit_to_each(self, requests: Sequence[Request]) -> dict[str, list[Future[Completion]]]:
        return {
            name: [_done(each) for each in group.answer(list(requests)).result()]
            for name, group in self._groups.items()
        }


def _done(completion: Completion) -> Future[Completion]:
    future: Future[Completion] = Future()
    future.set_result(completion)
    return future
