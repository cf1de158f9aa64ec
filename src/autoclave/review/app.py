"""The application behind the review page: its files, and the interface that its script uses.

Reading works beside a session of another process. What changes something opens a session of its own, for one request.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from autoclave import __version__
from autoclave.act.own import own_actions
from autoclave.core import AutoclaveError, HostError, UsageError
from autoclave.review import deciding
from autoclave.review.answers import Answer
from autoclave.review.details import details_of, image_of
from autoclave.review.file_changes import image_type
from autoclave.review.guard import Guard
from autoclave.review.timeline import Timeline
from autoclave.runtime.actions import Actions
from autoclave.runtime.interface import Choice
from autoclave.runtime.opening import default_state, open_records
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.grants import Grant, lint, shown_grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from autoclave.service.refusals import validation_message

_HERE = Path(__file__).parent
_STATUSES = {
    400: "Not JSON that can be read.",
    401: "No token.",
    403: "Of another host, site or origin.",
    404: "There is no such thing.",
    409: "It cannot be done now; the message says why.",
    413: "Too large.",
    415: "Not application/json.",
    422: "Not valid; the message gives the rule.",
    503: "This machine lacks something.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The folder to review. `open_session` waits a bounded time for other processes."""

    root: Path
    state: Path | None
    open_session: Callable[[], Session]

    def records(self) -> AbstractContextManager[tuple[Actions, Permissions]]:
        return open_records(self.root, self.state)

    @property
    def state_folder(self) -> Path:
        return self.state or default_state(self.root)


def create_app(place: Place, token: str) -> ASGIApp:
    """Return the application, which answers only requests with the token."""
    app = FastAPI(
        title="Autoclave review",
        version=__version__,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=Answer,
    )
    app.state.place, app.state.timeline = place, Timeline()
    app.include_router(_files)
    app.include_router(_api, prefix="/api", responses={code: {"description": text} for code, text in _STATUSES.items()})
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(AutoclaveError, _own_error)
    app.add_exception_handler(Exception, _internal_error)
    return Guard(app, token)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Answer({"error": str(error.detail)}, error.status_code)


async def _validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return Answer({"error": validation_message(error)}, 422)


async def _own_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, AutoclaveError)
    status = 404 if isinstance(error, UsageError) else 503 if isinstance(error, HostError) else 409
    return Answer({"error": deciding.message_of(error)}, status)


async def _internal_error(_: Request, error: Exception) -> Response:
    """Report a bug; Starlette raises it again, which logs it."""
    return Answer({"error": "the server failed; its terminal shows the error"}, 500)


_files, _api = APIRouter(include_in_schema=False), APIRouter()


@_files.get("/")
async def page() -> Response:
    return FileResponse(_HERE / "review.html", media_type="text/html; charset=utf-8")


@_files.get("/review.{kind}")
async def file(kind: Literal["css", "js"]) -> Response:
    types = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
    return FileResponse(_HERE / f"review.{kind}", media_type=types[kind])


def _place(request: Request) -> Place:
    return request.app.state.place


PlaceDep = Annotated[Place, Depends(_place)]
ActionId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
ActionPath = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{8}$")]
ActionIds = Annotated[list[ActionId], Field(min_length=1, max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


@_api.get("/timeline")
def timeline(request: Request, place: PlaceDep, after: Annotated[int, Query(ge=0, le=2**53)] = 0) -> Response:
    """Return the actions that changed after a record, with groups, savepoints, denials and alarms."""
    with place.records() as (actions, _):
        told = request.app.state.timeline.since(after, actions.journal)
    return Answer({**told, "root": str(place.root.resolve())})


@_api.get("/actions/{action}")
def details(action: ActionPath, place: PlaceDep) -> Response:
    """Return an action with its operation, records and changes."""
    with place.records() as (actions, _):
        return Answer(details_of(actions, place.root, place.state_folder, action))


@_api.get("/actions/{action}/images/{index}/{side}")
def image(
    action: ActionPath,
    index: Annotated[int, PathParameter(ge=0, le=10**6)],
    side: Literal["before", "after"],
    place: PlaceDep,
) -> Response:
    """Return an image that an action changed, before or after."""
    with place.records() as (actions, _):
        found = image_of(actions, place.root, place.state_folder, action, index, side)
    return Response(found.content, media_type=image_type(found))


@_api.get("/audit")
def audit(place: PlaceDep) -> Response:
    """Return the traces of tampering with the journal."""
    with place.records() as (actions, _):
        findings = [{"damage": each.damage, "number": each.number} for each in actions.journal.audit()]
        return Answer({"findings": findings, "records": len(actions.journal.records())})


@_api.get("/grants")
def grants(place: PlaceDep) -> Response:
    """Return the grants of all sessions, with warnings about those too wide."""
    with place.records() as (actions, _):
        found = _grants(actions)
    told = [
        {"id": each.id, "effect": each.effect, "session": each.session, "text": shown_grant(each)} for each in found
    ]
    return Answer({"grants": told, "notes": lint(found, time.time())})


def _grants(actions: Actions) -> list[Grant]:
    """Return the grants of all sessions."""
    records = actions.journal.records_of_kinds("grant")
    names = dict.fromkeys(["main", *(str(record.body.get("session") or "main") for record in records)])
    found = {grant.id: grant for name in names for grant in Permissions(actions.journal, name, 0.0).grants()}
    return list(found.values())


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Chosen(_Body):
    """Actions."""

    actions: ActionIds


class Previewed(_Body):
    """Actions to undo, or a savepoint to undo to."""

    actions: ActionIds | None = None
    savepoint: Name | None = None


class Undone(Chosen):
    """Actions to undo, all that a preview named. `choices` are by the keys of its conflicts."""

    savepoint: Name | None = None
    """That of the preview, if it was of one."""
    choices: dict[Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,8192}$")], Choice] = {}


class Resolved(_Body):
    """An action in doubt, with its state and what was checked; without them its resource is read again."""

    action: ActionId
    state: Literal["executed", "failed", "undone", "undo_failed"] | None = None
    reason: Name | None = None


class Named(_Body):
    """A savepoint."""

    name: Name


class Revoked(_Body):
    """A grant."""

    grant: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]


class Nothing(_Body):
    """No arguments."""


@_api.post("/preview")
def preview(body: Previewed, place: PlaceDep) -> Response:
    """Return what an undo would undo, what stands in its way, and what others have changed since."""
    with place.records() as (actions, _):
        chosen = body.actions or own_actions(actions, None, body.savepoint or "")
        told = deciding.undo_preview(actions, chosen)
    try:
        with place.open_session() as session:
            checked = deciding.obstacles_and_conflicts(session, told["actions"])
    except AutoclaveError as error:
        return Answer({**told, "obstacles": [], "conflicts": [], "unchecked": deciding.message_of(error)})
    return Answer({**told, **checked, "unchecked": ""})


@_api.post("/undo")
def undo(body: Undone, place: PlaceDep) -> Response:
    """Undo actions, all or none. Refused where a later action depends on them that is not among them."""
    with place.open_session() as session:
        done = deciding.undo(session, body.actions, body.savepoint, body.choices)
    return Answer({"done": done, "error": ""})


@_api.post("/redo")
def redo(body: Chosen, place: PlaceDep) -> Response:
    """Redo actions in turn, up to the first that fails."""
    with place.open_session() as session:
        return Answer(deciding.each_in_turn(body.actions, session.redo))


@_api.post("/commit")
def commit(body: Chosen, place: PlaceDep) -> Response:
    """Make actions permanent in turn, up to the first that fails."""
    with place.open_session() as session:
        return Answer(deciding.each_in_turn(body.actions, session.commit))


@_api.post("/discard")
def discard(body: Chosen, place: PlaceDep) -> Response:
    """Discard actions that have not begun."""
    with place.open_session() as session:
        return Answer(deciding.each_in_turn(body.actions, session.discard))


@_api.post("/resolve")
def resolve(body: Resolved, place: PlaceDep) -> Response:
    """Settle an action in doubt."""
    if (body.state is None) != (body.reason is None):
        raise HTTPException(422, "state and reason: go together")
    with place.open_session() as session:
        if body.state is None or body.reason is None:
            standing = session.check_again(body.action)
        else:
            standing = session.resolve(body.action, ActionState(body.state), body.reason)
        return Answer({"done": [body.action], "state": standing.state, "error": ""})


@_api.post("/savepoints")
def savepoint(body: Named, place: PlaceDep) -> Response:
    """Record a savepoint."""
    with place.open_session() as session:
        session.savepoint(body.name)
    return Answer({"done": [body.name], "error": ""})


@_api.post("/revoke")
def revoke(body: Revoked, place: PlaceDep) -> Response:
    """Revoke a grant, with those that narrow it. A running session takes it over."""
    with place.records() as (actions, permissions):
        session = next((each.session for each in _grants(actions) if each.id == body.grant), "")
        owner = Permissions(actions.journal, session, 0.0) if session else permissions
        owner.revoke(body.grant)
    return Answer({"done": [body.grant], "error": ""})


@_api.post("/stop")
def stop(body: Nothing, place: PlaceDep) -> Response:
    """Deny all further actions, also those of a running session, until the denial is revoked."""
    denial = Grant(effect="forbid", resources=("**",), verbs=("*",))
    with place.records() as (_, permissions):
        permissions.grant(denial)
    return Answer({"done": [denial.id], "error": ""})
