"""Sessions of programs and agents on a folder, its databases and its services.

Theory of operation. A `Session` opens a session of the runtime for each call and closes it after the call, so that
other sessions and the command line work on the same state between two calls; each waits for the locks of the others. An
exclusive session stays open, which transactions that are left open need. Calls of several threads are done one after
another.

Each action is recorded with the name of its session, and a session undoes its own actions only. Permissions come from
grants alone: those of the user, and those that the program which opens the session passes (`allow`), which end with it.
"""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from autoclave.act.connecting import changing_connections
from autoclave.act.functions import name_of
from autoclave.act.own import own_actions, require_independent, require_not_stopped, require_own
from autoclave.act.results import Change, Result
from autoclave.act.tools import (
    OWN,
    Diff,
    ExplainBlastRadius,
    ListChanges,
    Savepoint,
    Tool,
    Undo,
    UndoTo,
    operation_of,
    shown_tools,
    tools_of,
)
from autoclave.config import Config
from autoclave.core import AutoclaveError, InputError, UsageError
from autoclave.core.closing import Closing
from autoclave.core.json import validated
from autoclave.runtime.connections import load_connections
from autoclave.runtime.files.manager import FileManager
from autoclave.runtime.files.reading import PRIVATE_KEY
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, Json, NotPermitted, Plan
from autoclave.runtime.opening import default_state, open_records, open_session
from autoclave.runtime.policy.grants import Grant, grant_from
from autoclave.runtime.policy.request import Request
from autoclave.runtime.proposals import arguments_from, refusal_of, result_of
from autoclave.runtime.session import Session as RuntimeSession
from autoclave.runtime.states import ActionState

Allowance = Grant | Mapping[str, Any] | str
"""A grant, its settings, or a pattern of resources on which it permits all verbs."""
Settings = Mapping[str, Mapping[str, Any]]
_S = ActionState
_NOT_RUN = "unknown: it is run only by a call, since what it does over the network cannot be undone"
_MOST_SHOWN = 20_000
"""Characters of a difference that a model is sent."""


def session(
    root: Path | str,
    state: Path | str | None = None,
    *,
    name: str = "",
    allow: Iterable[Allowance] = (),
    databases: Settings | None = None,
    services: Settings | None = None,
    functions: Sequence[Callable[..., Any]] = (),
    by: str = "caller",
    exclusive: bool = False,
    wait_s: float = 60.0,
    **others: Any,
) -> "Session":
    """Open a session on the folder `root`.

    Args:
        state: the folder of the journal and of what actions replace; `.autoclave-NAME` beside `root` by default.
        name: recorded with each action; grants can be limited to it. Random by default. A session with the name of an
            earlier one can undo the actions of that.
        allow: grants for this session, which are revoked when it is closed. Pass only what the user permits.
        databases: settings of databases by name, as of `autoclave act connect database`. They stay connected.
        services: settings of services, likewise.
        functions: functions with the decorator `reversible` that are tools of this session.
        by: recorded as the one who proposes.
        exclusive: whether to keep the state locked until the session is closed, as `mode: transaction` of databases
            needs.
        wait_s: seconds to wait for a lock that another session has.
        others: `packages`, `open_vault`, `kept_outside`, `budget` and `lives_on` (by default as `exclusive`) of
            `autoclave.runtime.opening.open_session`.

    Raises:
        InputError: a folder cannot be used, a grant or a connection is not valid, or a lock stays taken.
        HostError: the folders are not on the same file system.
    """
    root, place = Path(root), Path(state) if state else default_state(Path(root))
    name, named = name or f"python-{secrets.token_hex(4)}", tuple(map(name_of, functions))
    if databases or services or named:
        with changing_connections(root, place, where="act.session", wait_s=wait_s) as told:
            told.setdefault("databases", {}).update(_with_whole_paths(databases or {}))
            told.setdefault("services", {}).update(services or {})
            if named:
                told.setdefault("managers", {}).setdefault("call", {})
    opened = partial(open_session, root, place, name=name, wait_s=wait_s, **{"lives_on": exclusive, **others})
    return Session(opened, root, place, name, allow=allow, functions=named, by=by, exclusive=exclusive)


class Session(Closing):
    """A session on a folder; see `session`. Safe to use from several threads."""

    def __init__(
        self,
        opened: Callable[[], RuntimeSession],
        root: Path,
        state: Path,
        name: str,
        *,
        allow: Iterable[Allowance] = (),
        functions: Sequence[str] = (),
        by: str = "caller",
        exclusive: bool = False,
    ) -> None:
        self.root, self.state, self.name = root, state, name
        self.recovered = list[str]()
        """Ids of actions of any session that were unfinished or in doubt, and that a call settled."""
        self._opened, self._by, self._functions = opened, by, functions
        self._lock, self._kept = threading.RLock(), None
        grants = [_grant(each, name) for each in allow]
        self._granted = list[str]()
        try:
            with self.opened() as first:  # the folders are usable, and what a process left unfinished is settled
                for grant in grants:
                    self._granted.append(grant.id)
                    first.permissions.grant(grant)
            self._kept = opened() if exclusive else None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Revoke the grants of this session; undo what an exclusive session left open."""
        with self._lock:
            kept, self._kept, granted, self._granted = self._kept, None, self._granted, []
            if kept is not None:
                kept.close()
            if granted:
                with open_records(self.root, self.state, name=self.name) as (_, permissions):
                    known = {each.id for each in permissions.grants()}
                    for grant in granted:
                        if grant in known:
                            permissions.revoke(grant)

    @contextlib.contextmanager
    def opened(self) -> Generator[RuntimeSession]:
        """Yield the session of the runtime, locked against other threads and, unless it is exclusive, other processes.

        Raises as `session`.
        """
        with self._lock:
            if self._kept is not None:
                yield self._kept
                return
            with self._opened() as found:
                self.recovered += found.recovered
                yield found

    def tools(self, form: Literal["openai", "anthropic"] = "openai") -> list[dict[str, Any]]:
        """Return the tools as definitions for the API of a model."""
        return shown_tools(self.tool_list(), form)

    def tool_list(self) -> list[Tool]:
        """Return the tools with their annotations: operations on what is connected, functions, and looking and undo."""
        with self.opened() as found:
            return tools_of(found, load_connections(self.state), self._functions)

    def call(self, name: str, arguments: Mapping[str, Any] | str = "{}") -> Result:
        """Call a tool with arguments as the model gave them: JSON text, or the parsed object.

        What goes wrong is a result too (`is_error`); its text is for the model.
        """
        try:
            given = arguments_from(arguments, f"tool {name}")
            if name in OWN:
                told = self._looked(validated(OWN[name], given, f"tool {name}"))
                return Result(json.dumps(told, ensure_ascii=False), output=told)
            return self.attempt(operation_of(name, given, self._functions))
        except (AutoclaveError, OSError) as error:
            return self._refused(error)

    def attempt(self, given: Json) -> Result:
        """Propose and run an operation, and commit it if it changed nothing; a denial or a failure is a result too."""
        action = ""
        try:
            with self.opened() as found:
                proposal = found.propose(given, by=self._by)
                action, plan = proposal.action, proposal.plan
                try:
                    done = found.run(action, plan.digest, approved_by=self._by)
                finally:
                    if found.journal.standing(action).state is _S.PROPOSED:
                        found.discard(action)
                if done.state is _S.EXECUTED and not plan.footprint.writes and plan.guarantee is Guarantee.EXACT:
                    found.commit(action)  # there is nothing to undo
        except (AutoclaveError, OSError) as error:
            return self._refused(error, action or getattr(error, "action", ""))
        guarantee = None if plan.is_read else plan.guarantee
        return Result(result_of(plan, "" if plan.is_read else action), action, guarantee, plan.changes, plan.output)

    def _refused(self, error: AutoclaveError | OSError, action: str = "") -> Result:
        refusal = refusal_of(error).reason if isinstance(error, InputError) else str(error)
        return Result(f"refused: {refusal}", action, output=dict(getattr(error, "output", {})), error=error)

    def _looked(self, given: Config) -> dict[str, Any]:
        """Return what a tool that is not an operation returns, as JSON data."""
        match given:
            case ListChanges():
                found = self.changes()
                shown = [each.told() for each in found[-given.last :]]
                return {"changes": shown, "left_out": len(found) - len(shown)}
            case Diff():
                return {"diff": self._readable_diff(given.action)[:_MOST_SHOWN]}
            case Undo():
                last = None if given.actions else given.last or 1
                return {"undone": self.undo(*given.actions, last=last, dependents=given.dependents)}
            case UndoTo():
                return {"undone": self.undo_to(given.savepoint)}
            case Savepoint():
                return {"savepoint": self.savepoint(given.name)}
            case ExplainBlastRadius():
                return self._explained(operation_of(given.tool, given.arguments, self._functions))
        raise AssertionError(given)

    def _explained(self, given: Json) -> dict[str, Any]:
        """Return what an operation would do. Where planning it has effects elsewhere, it is not planned."""
        with self.opened() as found:
            asked = found.asked(given)
            if asked.guarantee is Guarantee.NONE:
                request, changes = asked, [_NOT_RUN]
            else:
                plan = found.plan(given)
                request = Request(tuple(dict.fromkeys((*asked.accesses, *plan.request.accesses))), plan.guarantee)
                changes = list(plan.changes)
        accesses = [{name: value for name, value in asdict(each).items() if value} for each in request.accesses]
        return {"guarantee": request.guarantee, "weight": request.weight, "changes": changes, "accesses": accesses}

    def plan(self, given: Json) -> Plan:
        """Plan an operation without doing it. Recorded are a denial, and what planning a networked command sent."""
        with self.opened() as found:
            return found.plan(given)

    def changes(self, *, of_all_sessions: bool = False) -> list[Change]:
        """Return the actions of this session in the order of their proposals, without reads. Waits for no lock."""
        with open_records(self.root, self.state, name=self.name) as (actions, _):
            standings = actions.journal.standings(tuple(each for each in _S if each is not _S.READ))
        found = map(Change.of, standings)
        return [each for each in found if of_all_sessions or each.session == self.name]

    def diff(self, action: str) -> str:
        """Return the changes of an action as text."""
        with self.opened() as found:
            return "\n".join(found.difference(action))

    def _readable_diff(self, action: str) -> str:
        """Return the difference of an action of this session, if the grants permit to read all that it shows.

        Rows of databases are not shown: a model sees the schema only.
        """
        with self.opened() as found:
            require_own(found, self.name, action)
            manager = found.actions.manager_of_action(action)
            if not isinstance(manager, FileManager):
                raise InputError(f"action {action}: is not on files, and only of those a difference is shown")
            accesses = manager.observed(action, found.actions.receipt(action)).accesses
            resources = {each for access in accesses for each in access.resources if each.startswith("files")}
            if hidden := found.permissions.not_readable(sorted(resources)):
                raise NotPermitted(f"read {hidden[0]!r} is not permitted")
            shown = "\n".join(found.difference(action))
        if PRIVATE_KEY.search(shown.encode("utf-8", "surrogateescape")):
            raise NotPermitted(f"action {action}: a private key is in its difference")
        return shown

    def undo(
        self,
        *actions: str,
        last: int | None = None,
        all: bool = False,
        dependents: bool = False,
        choices: Mapping[str, Choice] | None = None,
        on_conflict: Choice = Choice.REFUSE,
    ) -> list[str]:
        """Undo actions of this session: those given, the `last` N that stand, or `all`; return the ids in order.

        All of them are undone or none. `dependents`, `choices` and `on_conflict` are as for `undo` of a session of the
        runtime. Raises InputError where an action is of another session, or actions of others came later and depend on
        it, and NotPermitted after `autoclave act stop`.
        """
        if (bool(actions), last is not None, all).count(True) != 1:
            raise UsageError("undo: give ids of actions, or one of last=N and all=True")
        with self.opened() as found:
            require_not_stopped(found)
            own = own_actions(found.actions, self.name)
            chosen = actions or tuple(own if all else own[-(last or 1) :])
            require_own(found, self.name, *chosen)
            require_independent(found, self.name, chosen)
            return found.undo(*chosen, dependents=dependents, choices=choices, on_conflict=on_conflict)

    def undo_to(self, savepoint: str, *, on_conflict: Choice = Choice.REFUSE) -> list[str]:
        """Undo the actions of this session since a savepoint of it that stand, all or none; return the ids in order."""
        with self.opened() as found:
            require_not_stopped(found)
            chosen = own_actions(found.actions, self.name, savepoint)
            require_independent(found, self.name, chosen)
            return found.undo(*chosen, on_conflict=on_conflict) if chosen else []

    def redo(self, action: str) -> Change:
        """Redo an action of this session that was undone. Raises InputError where it is of another session."""
        with self.opened() as found:
            require_own(found, self.name, action)
            return Change.of(found.redo(action))

    def savepoint(self, name: str = "") -> str:
        """Record a savepoint for `undo_to`; return its name, a random one by default.

        Raises InputError where any session has a savepoint of that name.
        """
        name = name or f"savepoint-{secrets.token_hex(4)}"
        with self.opened() as found:
            found.savepoint(name)
        return name

    def commit(self, *actions: str) -> None:
        """Make actions of this session permanent, by default all, and free what was kept for their undo.

        Raises InputError where an action is of another session. NotPermitted where a user has stopped this one.
        """
        with self.opened() as found:
            require_not_stopped(found)
            require_own(found, self.name, *actions)
            for action in actions or own_actions(found.actions, self.name):
                found.commit(action)

    def run_queued(self) -> list[Change]:
        """Execute the queued actions of all sessions whose delay has passed."""
        with self.opened() as found:
            return [Change.of(each) for each in found.run_queued()]


def _grant(given: Allowance, session: str) -> Grant:
    if isinstance(given, Grant):
        return given.model_copy(update={"session": session})
    settings = {"resources": [given], "verbs": ["*"]} if isinstance(given, str) else {"verbs": ["*"], **given}
    return grant_from({**settings, "session": session}, "allow")


def _with_whole_paths(databases: Settings) -> dict[str, dict[str, Any]]:
    """Return settings whose paths do not depend on the working folder."""
    return {
        name: {**given, **({"path": str(Path(given["path"]).resolve())} if given.get("path") else {})}
        for name, given in databases.items()
    }
