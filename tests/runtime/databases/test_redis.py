"""Actions on a key-value database, undone by what its keys held; on a real Redis server."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

redis = pytest.importorskip("redis")

from autoclave.core import HostError, InputError  # noqa: E402
from autoclave.runtime.connections import Connections, save_connections  # noqa: E402
from autoclave.runtime.databases.manager import DatabaseManager  # noqa: E402
from autoclave.runtime.databases.redis.engine import RedisDatabase  # noqa: E402
from autoclave.runtime.databases.settings import DatabaseConnection  # noqa: E402
from autoclave.runtime.guarantee import Guarantee  # noqa: E402
from autoclave.runtime.interface import Choice, NotPermitted, NotUndone  # noqa: E402
from autoclave.runtime.journal import Journal  # noqa: E402
from autoclave.runtime.opening import open_session  # noqa: E402
from autoclave.runtime.permissions import Permissions  # noqa: E402
from autoclave.runtime.policy.grants import Grant  # noqa: E402
from autoclave.runtime.session import Session  # noqa: E402
from autoclave.runtime.states import ActionState  # noqa: E402
from tests.runtime.deaths import dies_within  # noqa: E402

S = ActionState
CANARY = "canary-5e19"
FAR_MS = 33_000_000_000_000
DEADLINE_S = 60.0


class Server:
    """A real Redis server with a socket in a folder, and an append-only file, so that it can be killed."""

    def __init__(self, folder: Path) -> None:
        self.way = folder / "socket"
        self._words = ["redis-server", "-", "--port", "0", "--unixsocket", f"{self.way}", "--dir", f"{folder}"]
        self._words += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.start()

    def start(self) -> None:
        self.way.unlink(missing_ok=True)
        self._process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(redis.RedisError, OSError):
                if self.way.exists() and self.others("PING"):
                    return
            assert time.monotonic() < until
            time.sleep(0.01)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def others(self, *words: Any) -> Any:
        """A command as somebody else."""
        with contextlib.closing(redis.Redis(unix_socket_path=f"{self.way}", protocol=2)) as client:
            return client.execute_command(*words)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server with some keys."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (make setup-system)")
    server = Server(folder)
    fill(server)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(started: Server) -> Server:
    fill(started)
    return started


def fill(server: Server) -> None:
    """Have the server hold these keys alone."""
    server.others("FLUSHALL")
    for words in (
        ("SET", "greeting", "hello", "PXAT", FAR_MS),
        ("SET", "count", "5"),
        ("SET", "secret", CANARY),
        ("HSET", "user:1", "name", "ada", "age", "36"),
        ("RPUSH", "queue", "a", "b", "a"),
        ("SADD", "tags", "x", "y"),
        ("ZADD", "scores", "1.5", "ada", "2", "bob"),
        ("SET", "other", "stays"),
        ("XADD", "stream", "1-1", "a", "b"),
    ):
        server.others(*words)


def opened(server: Server, state: Path, **changed: Any) -> Session:
    settings = DatabaseConnection(engine="redis", host=f"{server.way}", dbname="0").model_copy(update=changed)
    with contextlib.ExitStack() as opening:
        journal = opening.enter_context(Journal(state / "journal.sqlite", state / "checkpoints" / "signed"))
        manager = opening.enter_context(
            contextlib.closing(DatabaseManager({"cache": settings}, state / "keys", lambda _: "word"))
        )
        session = Session(journal, [manager], Permissions(journal, "main", 1e9), opening.pop_all())
    if not session.permissions.grants():
        session.permissions.grant(Grant(resources=("databases/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return session


@pytest.fixture
def session(server: Server, tmp_path: Path) -> Iterator[Session]:
    with opened(server, tmp_path / "state") as session:
        yield session


def operation(*commands: str) -> dict[str, Any]:
    """Commands by their words, with blanks between."""
    return {"do": "commands", "database": "cache", "commands": [each.split(" ") for each in commands]}


def done(session: Session, *commands: str) -> str:
    proposal = session.propose(operation(*commands))
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


ACTS = {
    "a text that ends": ["SET greeting bye"],
    "a text that goes on ending": ["SET greeting bye KEEPTTL"],
    "a new key": ["SET fresh 1"],
    "a key that goes": ["DEL count"],
    "a number": ["INCRBY count 7"],
    "an end": [f"PEXPIREAT count {FAR_MS}"],
    "an end in the past": ["PEXPIREAT count 1"],
    "a hash": ["HSET user:1 age 37 town paris"],
    "a list": ["RPUSH queue c", "LPOP queue"],
    "a list that is emptied": ["LTRIM queue 5 9"],
    "a set": ["SADD tags z", "SREM tags x"],
    "scores": ["ZINCRBY scores 2 ada", "ZREM scores bob"],
    "another name": ["RENAME user:1 user:2"],
    "a name that is taken": ["RENAME user:1 greeting"],
    "a move": ["SMOVE tags more x"],
    "a stream that is renamed": ["RENAME stream flow"],
    "a stream that goes": ["DEL stream"],
    "another type": ["DEL count", "RPUSH count 5"],
    "several": ["MSET a 1 b 2", "APPEND a 1", "DEL queue"],
}


def held(server: Server) -> dict[str, Any]:
    """All that can be known of keys: for sets, whatever their order."""
    found: dict[str, Any] = {}
    for key in sorted(server.others("KEYS", "*")):
        kind = server.others("TYPE", key)
        read = {"string": ("GET", key), "hash": ("HGETALL", key), "list": ("LRANGE", key, 0, -1)}
        read |= {"set": ("SMEMBERS", key), "zset": ("ZRANGE", key, 0, -1, "WITHSCORES"), "stream": ("DUMP", key)}
        found[key] = (kind, server.others(*read[kind.decode()]), server.others("PEXPIRETIME", key))
    return found


@pytest.mark.parametrize("commands", ACTS.values(), ids=ACTS)
def test_what_was_done_is_taken_back_exactly_and_done_again(server: Server, session: Session, commands: list[str]):
    before = held(server)
    proposal = session.propose(operation(*commands))
    assert held(server) == before
    session.run(proposal.action, proposal.plan.digest)
    after = held(server)
    assert after != before
    for verb, expected in (("undo", before), ("redo", after), ("undo", before)):
        getattr(session, verb)(proposal.action)
        assert held(server) == expected
    assert session.audit() == []


def test_another_client_never_sees_a_plan(server: Server, session: Session):
    ends = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not ends.is_set():
            seen.add(server.others("GET", "count"))

    looker = threading.Thread(target=look)
    looker.start()
    for number in range(100):
        session.propose(operation(f"INCRBY count {number + 1}"))
    ends.set()
    looker.join(DEADLINE_S)
    assert seen == {b"5"}


@pytest.mark.parametrize("command", ["SADD tags x", "DEL nothing", "SET count 5"])
def test_what_would_change_nothing_is_no_action(session: Session, tmp_path: Path, command: str):
    with pytest.raises(InputError, match="change nothing as it is now"):
        done(session, command)
    assert list((tmp_path / "state" / "keys").iterdir()) == []


REFUSED = """
    FLUSHALL; FLUSHDB; CONFIG SET dir /tmp; EVAL x 0; EVALSHA x 0; FCALL f 0; SCRIPT LOAD x; KEYS *; SCAN 0;
    MIGRATE h 1 k 0 1; SUBSCRIBE c; PUBLISH c m; SHUTDOWN; DEBUG SLEEP 1; BLPOP queue 0; BRPOP queue 0; BLMOVE
    queue b LEFT LEFT 0; MULTI; EXEC; DISCARD; WATCH k; SELECT 1; SWAPDB 0 1; MOVE count 1; COPY count c2 DB 1;
    SPOP tags; SRANDMEMBER tags; RANDOMKEY; EXPIRE count 10; PEXPIRE count 10; SETEX count 10 x; SET count 1 EX
    10; SET count 1 PX 10; GETEX count EX 1; XADD s * a b; RESTORE k 0 x; DUMP count; SAVE; REPLICAOF h 1;
    SLAVEOF h 1; CLIENT KILL 1; ACL SETUSER x; MODULE LOAD x; WAIT 1 0; SORT queue STORE x; OBJECT HELP;
    MONITOR; SYNC; CLUSTER RESET; GET count; SET count 1 EXAT
"""


def test_what_does_more_than_change_the_keys_that_it_names_is_refused(server: Server, session: Session):
    before = held(server)
    for command in (" ".join(each.split()) for each in REFUSED.split(";")):
        with pytest.raises(InputError):
            pytest.fail(f"was done: {done(session, command)} {command}")
    assert held(server) == before


def test_a_command_that_fails_in_the_middle_leaves_nothing(server: Server, session: Session):
    before = held(server)
    with pytest.raises(InputError, match="WRONGTYPE"):
        done(session, "SET fresh 1", "INCR queue")
    assert held(server) == before


def test_what_changed_since_it_was_planned_is_not_done(server: Server, session: Session):
    proposal = session.propose(operation("INCRBY count 7"))
    server.others("SET", "count", "6")
    there = held(server)
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(proposal.action, proposal.plan.digest)
    assert held(server) == there


def test_no_client_gets_in_between_the_look_and_the_commands(
    server: Server, session: Session, monkeypatch: pytest.MonkeyPatch
):
    whole = RedisDatabase._execute

    def execute(store: RedisDatabase) -> Any:
        server.others("SET", "count", "100")
        return whole(store)

    proposal = session.propose(operation("INCRBY count 7"))
    monkeypatch.setattr(RedisDatabase, "_execute", execute)
    with pytest.raises(InputError):
        session.run(proposal.action, proposal.plan.digest)
    assert server.others("GET", "count") == b"100"


def test_a_key_that_others_changed_is_named_and_a_person_says_what_becomes_of_it(server: Server, session: Session):
    action = done(session, "INCRBY count 7", "SET fresh 1")
    server.others("SET", "count", "50")
    theirs = held(server)
    with pytest.raises(InputError, match="somebody else has changed cache/0/count"):
        session.undo(action)
    with pytest.raises(InputError, match="no other place"):
        session.undo(action, on_conflict=Choice.SAVE_ASIDE)
    assert held(server) == theirs
    session.undo(action, choices={"cache/0/count": Choice.SKIP})
    assert (server.others("GET", "count"), server.others("EXISTS", "fresh")) == (b"50", 0)
    session.redo(action)
    assert held(server) == theirs
    again = done(session, "INCRBY count 1")
    server.others("SET", "count", "60")
    theirs = held(server)
    session.undo(again, on_conflict=Choice.FORCE)
    assert server.others("GET", "count") == b"50"
    session.redo(again)
    assert held(server) == theirs


def test_where_all_keys_are_skipped_the_action_stands(server: Server, session: Session):
    action = done(session, "INCRBY count 7")
    server.others("SET", "count", "50")
    with pytest.raises(NotUndone, match="others have changed all of its rows"):
        session.undo(action, on_conflict=Choice.SKIP)
    assert session.journal.standing(action).state is S.EXECUTED


def test_one_of_three_is_taken_back_and_a_later_one_on_the_same_key_stands_against_it(server: Server, session: Session):
    first = done(session, "INCRBY count 7")
    done(session, "SADD tags z")
    third = done(session, "INCRBY count 1")
    with pytest.raises(InputError, match=f"{third} came later"):
        session.undo(first)
    assert session.undo(first, dependents=True) == [third, first]
    assert server.others("GET", "count") == b"5"
    assert server.others("SISMEMBER", "tags", "z") == 1


def test_what_keys_hold_is_in_no_message_and_not_in_the_journal(server: Server, tmp_path: Path):
    with opened(server, tmp_path / "state") as session:
        messages = [session.told()]
        for command in ("INCR secret", "LPUSH secret x"):
            with pytest.raises(InputError) as caught:
                done(session, command)
            messages.append(f"{caught.value} {caught.value.__cause__}")
        action = done(session, "RENAME secret hidden")
        messages += session.difference(action)
        session.undo(action)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file() and path.parts[-3] != "keys"]
    assert CANARY not in "\n".join(messages)
    assert CANARY.encode() not in b"".join(path.read_bytes() for path in files)


def test_a_user_with_the_least_rights_is_enough(server: Server, tmp_path: Path):
    rights = "~user:* +@read +@write +@transaction -@dangerous -@blocking +restore +command|getkeysandflags"
    server.others("ACL", "SETUSER", "agent", "reset", "on", ">word", *rights.split())
    before = held(server)
    with opened(server, tmp_path / "state", user="agent", password_secret="its") as session:
        action = done(session, "HSET user:1 age 37")
        session.undo(action)
        assert held(server) == before
        with pytest.raises(InputError, match="NoPermission"):
            done(session, "INCRBY count 7")


def test_who_is_not_let_in_or_not_there_is_told(server: Server, tmp_path: Path):
    for number, (changed, kind, message) in enumerate(
        (
            ({"user": "nobody", "password_secret": "its"}, InputError, "does not let the user in"),
            ({"host": "/nowhere"}, HostError, "does not answer"),
            ({"dbname": "shop"}, InputError, "the number of a database"),
        )
    ):
        with opened(server, tmp_path / f"{number}", **changed) as session, pytest.raises(kind, match=message):
            done(session, "SET x 1")


def dies_at(deadly: int, server: Server, state: Path, work: Callable[[Session], object]) -> bool:
    """Whether a process that is killed at its so-manieth event came so far."""

    def acting(dying: Callable[..., Any]) -> None:
        for owner, name in ((Journal, "_add"), (Journal, "seal"), (RedisDatabase, "_execute")):
            setattr(owner, name, dying(getattr(owner, name)))
        with opened(server, state) as session:
            work(session)

    return dies_within(deadly, acting)


def test_killed_at_every_event_an_action_is_done_or_not_and_so_is_its_undo(server: Server, tmp_path: Path):
    commands = "INCRBY count 7", "SET fresh 1"
    before, state = held(server), tmp_path / "state"
    with opened(server, state) as session:
        action = done(session, *commands)
        after = held(server)
        session.undo(action)
    seen = set()
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, server, state, lambda session: done(session, *commands))
        with opened(server, state) as session:
            last = session.journal.standings()[-1]
            assert held(server) == (after if last.state is S.EXECUTED else before), (deadly, last.state)
            seen.add(last.state)
            if last.state is S.EXECUTED:
                session.undo(last.action)
            assert held(server) == before
        if not was_killed:
            break
    assert seen >= {S.APPROVED, S.EXECUTED, S.FAILED}
    for verb, ended, other in (("redo", after, before), ("undo", before, after)):
        for deadly in itertools.count(1):
            was_killed = dies_at(deadly, server, state, lambda session, verb=verb: getattr(session, verb)(action))
            with opened(server, state) as session:
                is_over = (session.journal.standing(action).state is not S.UNDONE) == (verb == "redo")
                assert held(server) == (ended if is_over else other), (verb, deadly)
                if is_over and was_killed:
                    (session.undo if verb == "redo" else session.redo)(action)
            if not was_killed:
                break
        assert deadly > 3


@pytest.mark.parametrize("is_heard", [True, False], ids=["done", "not done"])
def test_a_connection_lost_while_it_is_done_is_looked_into(
    server: Server, session: Session, monkeypatch: pytest.MonkeyPatch, is_heard: bool
):
    before, whole, armed = held(server), RedisDatabase._execute, list[None]()
    waiting = list[None]()

    def execute(store: RedisDatabase) -> Any:
        if armed:
            armed.pop()
        if not waiting or armed:
            return whole(store)
        waiting.clear()
        connection = store._connection
        if is_heard:
            connection.send_command("EXEC")
            connection.can_read(timeout=DEADLINE_S)
        connection._sock.shutdown(socket.SHUT_RDWR)
        return whole(store)

    monkeypatch.setattr(RedisDatabase, "_execute", execute)
    proposal = session.propose(operation("INCRBY count 7"))
    armed += [None] * 3  # it is planned again, and once more to be done
    waiting.append(None)
    if is_heard:
        session.run(proposal.action, proposal.plan.digest)
        assert session.journal.standing(proposal.action).state is S.EXECUTED
        assert server.others("GET", "count") == b"12"
        armed.append(None)
        waiting.append(None)
        session.undo(proposal.action)
        assert session.journal.standing(proposal.action).state is S.UNDONE
    else:
        with pytest.raises(InputError, match="it was not done"):
            session.run(proposal.action, proposal.plan.digest)
    assert held(server) == before


def test_a_server_that_stops_is_told_and_nothing_is_left_in_between(server: Server, tmp_path: Path):
    before = held(server)
    with opened(server, tmp_path / "state") as session:
        action = done(session, "INCRBY count 7")
        server.stop()
        with pytest.raises(HostError, match="does not answer"):
            session.undo(action)
        server.start()
    with opened(server, tmp_path / "state") as session:
        session.undo(action)
        assert held(server) == before


def test_it_is_connected_as_other_databases_are(server: Server, tmp_path: Path):
    cache = DatabaseConnection(engine="redis", host=f"{server.way}", dbname="0")
    save_connections(tmp_path / "state", Connections(databases={"cache": cache}))
    (tmp_path / "root").mkdir()
    before = held(server)
    with open_session(tmp_path / "root", tmp_path / "state") as session:
        session.permissions.grant(
            Grant(resources=("databases/cache/0/count",), verbs=("read", "modify"), minimum_guarantee=Guarantee.EXACT)
        )
        assert "database cache (redis)" in session.told()
        action = done(session, "INCRBY count 7")
        with pytest.raises(NotPermitted):
            done(session, "SET fresh 1")
        session.undo(action)
    assert held(server) == before
