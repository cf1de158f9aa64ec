"""A model behind a server that speaks OpenAI's chat or completions."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

from autoclave.config import EndpointConfig
from autoclave.evaluation.responses import Response, ResponseRequest
from autoclave.rollout.http_server import Line, Server, Unavailable

_SEED_BASE = 1_000_003
_MOST_STOPS = 4
"""Limit of OpenAI; the other stops cut the text here."""


class Endpoint:
    """Samples from the server at `url`, with or without `/v1`. `key` is called for each request.

    Raises:
        ConfigError: it has several models, and the settings do not choose one.
        EngineFault: it does not answer.
        InputError: it refuses; the message quotes it.
    """

    def __init__(self, url: str, config: EndpointConfig, key: Callable[[], str] = str) -> None:
        self._config, self._key = config, key
        self._server = Server(url.rstrip("/").removesuffix("/v1"), config.timeout_s, config.retries)
        self._model = config.model or replace(self._server, key=key()).only_model("endpoint.model")
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="endpoint")
        self._pace = _Pace(config.requests_per_minute)
        self._counting = threading.Lock()
        self._line = Line()
        self._requests = self._prompt_tokens = self._tokens = 0

    @property
    def identity(self) -> Any:
        """Server and model. Changes behind that name go unnoticed."""
        return ["endpoint", self._server.url, self._model]

    @property
    def model(self) -> str:
        return self._model

    def respond(self, requests: Sequence[ResponseRequest]) -> list[Future[Response]]:
        return [self._threads.submit(self._respond, request) for request in requests]

    def account(self) -> Mapping[str, Any]:
        """Return requests, tokens as the server counts them, and their cost by the configured prices."""
        with self._counting:
            cost = self._prompt_tokens * self._config.input_price + self._tokens * self._config.output_price
            return {
                "requests": self._requests,
                "prompt_tokens": self._prompt_tokens,
                "response_tokens": self._tokens,
                "cost": cost / 1e6,
            }

    def close(self) -> None:
        """Cancel queued requests and retries, and wait for requests in flight, which are paid for."""
        self._line.is_cut.set()
        self._threads.shutdown(cancel_futures=True)

    def _respond(self, request: ResponseRequest) -> Response:
        path, body = self._request(request)
        self._pace.wait()
        response = replace(self._server, key=self._key()).ask(
            "POST", path, body, self._line, lambda answer: _response(answer, request.parameters.stops)
        )
        with self._counting:
            self._requests += 1
            self._prompt_tokens += response.prompt_tokens or 0
            self._tokens += response.tokens or 0
        return response

    def _request(self, request: ResponseRequest) -> tuple[str, dict[str, Any]]:
        parameters = request.parameters
        body: dict[str, Any] = {
            "model": self._model,
            self._config.token_limit_field: parameters.max_new_tokens,
            "temperature": parameters.temperature,
            "seed": _SEED_BASE + request.sample,
        }
        if parameters.top_p < 1:
            body["top_p"] = parameters.top_p
        if parameters.stops:
            body["stop"] = list(parameters.stops[:_MOST_STOPS])
        if request.tools:
            body["tools"] = list(request.tools)
        if request.is_chat:
            return "/v1/chat/completions", {**body, "messages": [dict(message) for message in request.messages]}
        return "/v1/completions", {**body, "prompt": request.messages[-1]["content"]}


def _response(answer: Any, stops: Sequence[str]) -> Response:
    """Parse the answer of the server, whose form is not trusted, or raise `Unavailable`."""
    try:
        choice = cast("Mapping[str, Any]", answer["choices"][0])
        said = cast("Mapping[str, Any]", choice.get("message", choice))
        calls = tuple(_call(number, each) for number, each in enumerate(said.get("tool_calls") or ()))
        text = said.get("content") if calls else said["content" if "message" in choice else "text"]
        usage = cast("Mapping[str, Any]", answer.get("usage") or {})
        reason = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Unavailable(f"the answer has no choice with a text, or a damaged call: {str(answer)[:200]}") from None
    if not isinstance(text, str | None):
        raise Unavailable(f"the text of the answer is not a string: {str(text)[:200]}")
    whole = text or ""
    ends = [place for stop in stops if (place := whole.find(stop)) >= 0]
    numbers = (usage.get(name) for name in ("completion_tokens", "prompt_tokens"))
    tokens, prompt_tokens = (number if type(number) is int else None for number in numbers)
    finish = "length" if reason == "length" else "filtered" if reason == "content_filter" else "stop"
    return Response(whole[: min(ends, default=len(whole))], finish, tokens, prompt_tokens, calls=calls)


def _call(number: int, call: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return id, name and arguments; the latter may be damaged, which the policy is told."""
    function, arguments = call["function"], call["function"].get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return str(call.get("id") or f"call_{number}"), str(function["name"]), text


class _Pace:
    """Rate limit: at most `per_minute` calls of `wait` return in a minute, evenly; 0 is unlimited."""

    def __init__(self, per_minute: int) -> None:
        self._gap_s = 60.0 / per_minute if per_minute else 0.0
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._next)
            self._next = begins + self._gap_s
        time.sleep(begins - now)
