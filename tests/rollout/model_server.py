"""A real server on a free port: a tiny policy behind OpenAI's completions and the native interface of SGLang.

It follows their documentation, computes each token by a plain forward pass, and can be told to misbehave.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from autoclave.core import InputError
from autoclave.models import Policy, load_policy


@dataclass
class Sampling:
    """What of a request matters to the model."""

    context: list[int]
    tokens: int
    temperature: float
    top_p: float
    seed: int
    stops: list[str]
    stop_tokens: set[int]


@dataclass
class ModelServer:
    """Serves `policy` until it is closed. `trouble` are status codes, "break" or "silent", for the next
    streams, in order."""

    policy: Policy
    incremental: bool = False
    says_tokens: bool = True
    trouble: list[int | str] = field(default_factory=list)
    pause_s: float = 0.0
    asked: list[tuple[str, Any]] = field(default_factory=list)
    sampled: int = 0
    most_sampled: int = 0
    cut_off: int = 0
    is_paused: bool = False

    def __post_init__(self) -> None:
        self.is_closed = threading.Event()
        self.lock, self.counting = threading.Lock(), threading.Lock()
        handler = type("Handler", (_Handler,), {"served": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.is_closed.set()
        self._server.shutdown()
        self._server.server_close()

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def sample(self, wanted: Sampling) -> Iterator[tuple[int, float, str | None]]:
        """Tokens, their log-probs at the temperature before the nucleus, and why it ends with this one."""
        with self.counting:
            self.sampled += 1
            self.most_sampled = max(self.most_sampled, self.sampled)
        is_over = False
        try:
            for token, log_prob, reason in self._tokens(wanted):
                if reason:
                    self._leave()
                    is_over = True
                yield token, log_prob, reason
        finally:
            if not is_over:
                self._leave()

    def _leave(self) -> None:
        with self.counting:
            self.sampled -= 1

    def _tokens(self, wanted: Sampling) -> Iterator[tuple[int, float, str | None]]:
        draw, cache = np.random.default_rng(wanted.seed), DynamicCache(config=self.policy.model.config)
        tokens: list[int] = []
        new = wanted.context
        while True:
            with self.lock, torch.inference_mode():
                logits = self.policy.model(
                    input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True, logits_to_keep=1
                ).logits[0, -1]
            scores = torch.log_softmax(logits / (wanted.temperature or 1.0), -1).numpy()
            token = int(scores.argmax()) if wanted.temperature == 0 else _draw(scores, wanted.top_p, draw.random())
            tokens.append(token)
            text = self.policy.tokenizer.decode(tokens, skip_special_tokens=True)
            is_stop = token in wanted.stop_tokens or any(stop in text for stop in wanted.stops)
            reason = "stop" if is_stop else "length" if len(tokens) == wanted.tokens else None
            yield token, float(scores[token]), reason
            if reason:
                return
            new = [token]


def _draw(scores: np.ndarray, top_p: float, point: float) -> int:
    order = np.argsort(-scores)
    shares = np.exp(scores[order].astype(np.float64))
    inside = shares[: 1 + int(np.searchsorted(np.cumsum(shares), top_p))] if top_p < 1 else shares
    return int(order[np.searchsorted(np.cumsum(inside) / inside.sum(), point, side="right").clip(max=len(inside) - 1)])


class _Handler(BaseHTTPRequestHandler):
    served: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer(json.loads(content) if content else None)

    def _answer(self, body: Any) -> None:
        self.served.asked.append((self.path, body))
        routes: dict[str, Callable[[Any], None]] = {
            "/v1/models": lambda _: self._json({"data": [{"id": "tiny"}]}),
            "/v1/completions": lambda body: self._stream(body, self._openai),
            "/generate": lambda body: self._stream(body, self._sglang),
            "/health": lambda _: self._json(None),
            "/pause_generation": lambda _: self._pause(True),
            "/continue_generation": lambda _: self._pause(False),
            "/flush_cache": lambda _: self._json(None),
            "/update_weights_from_disk": self._update,
        }
        if self.path not in routes:
            return self._json({"error": "no such path"}, 404)
        with suppress(OSError):  # the client has gone
            routes[self.path](body)

    def _json(self, found: Any, status: int = 200) -> None:
        content = b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _pause(self, is_paused: bool) -> None:
        self.served.is_paused = is_paused
        self._json({"message": "ok"})

    def _update(self, body: Any) -> None:
        try:
            with self.served.lock:
                self.served.policy = load_policy(Path(body["model_path"]), device="cpu")
        except InputError as error:
            return self._json({"success": False, "message": str(error)}, 400)
        self._json({"success": True, "message": f"weights {body['weight_version']}"})

    def _stream(self, body: Any, events: Callable[[Any], Iterator[dict]]) -> None:
        served = self.served
        trouble = served.trouble.pop(0) if served.trouble else None
        if trouble == "silent":
            self.close_connection = True
            served.is_closed.wait(60)
            return None
        if isinstance(trouble, int):
            return self._json({"error": "trouble"}, trouble)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for number, event in enumerate(events(body)):
                if trouble == "break" and number == 3:
                    return
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                time.sleep(served.pause_s)
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            served.cut_off += 1
        finally:
            self.close_connection = True

    def _openai(self, body: Any) -> Iterator[dict]:
        assert body["model"] == "tiny"
        wanted = Sampling(
            body["prompt"],
            body["max_tokens"],
            body["temperature"],
            body["top_p"],
            body["seed"],
            body["stop"],
            set(body["stop_token_ids"]),
        )
        for token, log_prob, reason in self.served.sample(wanted):
            text = self.served.policy.tokenizer.decode([token])
            choice = {
                "index": 0,
                "text": text,
                "logprobs": {"tokens": [text], "token_logprobs": [log_prob]},
                "finish_reason": reason,
            }
            yield {"choices": [choice | ({"token_ids": [token]} if self.served.says_tokens else {})]}
        yield {"choices": [], "usage": {"prompt_tokens": len(wanted.context)}}

    def _sglang(self, body: Any) -> Iterator[dict]:
        assert body["return_logprob"]
        asked = body["sampling_params"]
        wanted = Sampling(
            body["input_ids"],
            asked["max_new_tokens"],
            asked["temperature"],
            asked["top_p"],
            asked["sampling_seed"],
            asked["stop"],
            set(asked["stop_token_ids"]),
        )
        scores: list[list] = []
        for token, log_prob, reason in self.served.sample(wanted):
            if self.served.is_paused:
                yield {
                    "meta_info": {
                        "finish_reason": {"type": "abort"},
                        "output_token_logprobs": [],
                        "completion_tokens": 0,
                    }
                }
                return
            scores.append([log_prob, token, None])
            yield {
                "text": "",
                "meta_info": {
                    "id": body["rid"],
                    "finish_reason": {"type": reason} if reason else None,
                    "completion_tokens": len(scores),
                    "cached_tokens": 0,
                    "output_token_logprobs": scores[-1:] if self.served.incremental else list(scores),
                },
            }
