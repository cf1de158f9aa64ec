"""Id of the request that is being served, in its tasks and threads."""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="")
