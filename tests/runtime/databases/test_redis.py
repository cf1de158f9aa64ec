"""Actions on a key-value database, which bring the commands that take them back; on a real Redis server."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

redis = pytest.importorskip("redis")

from autoclave.core import HostError, InputError  # noqa: E402
from autoclave.runtime.connections import Connections, save_connections  # noqa: E402
from autoclave.runtime.databases.redis.manager import KeyValueManager  # noqa: E402
from autoclave.runtime.databases.redis.store import Store  # noqa: E402
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
DEADLINE_S = 20.0


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

    def content(self) -> dict[bytes, Any]:
        """All keys: how they are dumped, and when they end."""
        keys = sorted(self.others("KEYS", "*"))
        return {key: (self.others("DUMP", key), self.others("PEXPIRETIME", key)) for key in keys}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (make setup-system)")
    server = Server(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def server(started: Server) -> Server:
    started.others("FLUSHALL")
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
        started.others(*words)
    return started


def opened(server: Server, state: Path, **changed: Any) -> Session:
    settings = DatabaseConnection(engine="redis", host=f"{server.way}", dbname="0").model_copy(update=changed)
    with contextlib.ExitStack() as opening:
        journal = opening.enter_context(Journal(state / "journal.sqlite", state / "checkpoints" / "signed"))
        manager = opening.enter_context(contextlib.closing(KeyValueManager({"cache": settings}, lambda _: "word")))
        session = Session(journal, [manager], Permissions(journal, "main", 1e9), opening.pop_all())
    if not session.permissions.grants():
        session.permissions.grant(Grant(resources=("databases/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return session


@pytest.fixture
def session(server: Server, tmp_path: Path) -> Iterator[Session]:
    with opened(server, tmp_path / "state") as session:
        yield session


def operation(commands: list[str], undo: list[str]) -> dict[str, Any]:
    """Commands by their words, with blanks between."""
    own = [[each.split(" ") for each in some] for some in (commands, undo)]
    return {"do": "commands", "database": "cache", "commands": own[0], "undo": own[1]}


def done(session: Session, commands: list[str], undo: list[str]) -> str:
    proposal = session.propose(operation(commands, undo))
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


RIGHT = {
    "a text that ends": (["SET greeting bye"], [f"SET greeting hello PXAT {FAR_MS}"]),
    "a text that goes on ending": (["SET greeting bye KEEPTTL"], ["SET greeting hello KEEPTTL"]),
    "a new key": (["SET fresh 1"], ["DEL fresh"]),
    "a key that goes": (["DEL count"], ["SET count 5"]),
    "a number": (["INCRBY count 7"], ["DECRBY count 7"]),
    "an end": ([f"PEXPIREAT count {FAR_MS}"], ["PERSIST count"]),
    "a hash": (["HSET user:1 age 37 town paris"], ["HSET user:1 age 36", "HDEL user:1 town"]),
    "a list": (["RPUSH queue c", "LPOP queue"], ["RPOP queue", "LPUSH queue a"]),
    "a set": (["SADD tags z", "SREM tags x"], ["SREM tags z", "SADD tags x"]),
    "scores": (["ZINCRBY scores 2 ada", "ZREM scores bob"], ["ZINCRBY scores -2 ada", "ZADD scores 2 bob"]),
    "another name": (["RENAME user:1 user:2"], ["RENAME user:2 user:1"]),
    "a move": (["SMOVE tags more x"], ["SMOVE more tags x"]),
    "a stream that is renamed": (["RENAME stream flow"], ["RENAME flow stream"]),
    "several": (["MSET a 1 b 2", "APPEND a 1", "DEL queue"], ["DEL a b", "RPUSH queue a b a"]),
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


@pytest.mark.parametrize(("commands", "undo"), RIGHT.values(), ids=RIGHT)
def test_what_was_done_is_taken_back_exactly_and_done_again(
    server: Server, session: Session, commands: list[str], undo: list[str]
):
    before = held(server)
    action = done(session, commands, undo)
    after = held(server)
    assert after != before
    session.undo(action)
    assert held(server) == before
    session.redo(action)
    assert held(server) == after
    session.undo(action)
    assert held(server) == before
    assert session.audit() == []


WRONG = {
    "the end is lost": (["SET greeting bye"], ["SET greeting hello"]),
    "another value": (["INCRBY count 7"], ["DECRBY count 6"]),
    "nothing": (["SET fresh 1"], ["DEL other2"]),
    "more than was done": (["SET fresh 1"], ["DEL fresh other"]),
    "another order": (["LPOP queue"], ["RPUSH queue a"]),
    "another type": (["DEL count"], ["RPUSH count 5"]),
    "it fails": (["SET fresh x"], ["DEL fresh", "INCR other"]),
    "one that was there already": (["SADD tags x z"], ["SREM tags x z"]),
}


@pytest.mark.parametrize(("commands", "undo"), WRONG.values(), ids=WRONG)
def test_a_wrong_undo_is_refused_before_anything_is_done(
    server: Server, session: Session, commands: list[str], undo: list[str]
):
    before = server.content()
    with pytest.raises(InputError, match="undo: is wrong"):
        done(session, commands, undo)
    assert server.content() == before


@pytest.mark.parametrize(
    ("commands", "undo"),
    [(["SADD tags x"], ["SADD tags x"]), (["DEL nothing"], ["DEL nothing"]), (["SET count 5"], ["SET count 5"])],
)
def test_what_would_change_nothing_is_no_action(session: Session, commands: list[str], undo: list[str]):
    with pytest.raises(InputError, match="change nothing as it is now"):
        done(session, commands, undo)


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
    before = server.content()
    for command in (" ".join(each.split()) for each in REFUSED.split(";")):
        for commands, undo in (([command], ["DEL x"]), (["SET x 1"], [command])):
            with pytest.raises(InputError):
                pytest.fail(f"was done: {done(session, commands, undo)} {command}")
    assert server.content() == before


def test_a_command_that_fails_in_the_middle_leaves_nothing(server: Server, session: Session):
    before = server.content()
    with pytest.raises(InputError, match="WRONGTYPE"):
        done(session, ["SET fresh 1", "INCR queue"], ["DEL fresh"])
    assert server.content() == before


def test_what_changed_since_it_was_planned_is_not_done(server: Server, session: Session):
    proposal = session.propose(operation(["INCRBY count 7"], ["DECRBY count 7"]))
    server.others("SET", "count", "6")
    there = server.content()
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(proposal.action, proposal.plan.digest)
    assert server.content() == there


def test_nobody_gets_in_between_the_look_and_the_commands(
    server: Server, session: Session, monkeypatch: pytest.MonkeyPatch
):
    whole = Store._execute

    def execute(store: Store) -> Any:
        server.others("SET", "count", "100")
        return whole(store)

    proposal = session.propose(operation(["INCRBY count 7"], ["DECRBY count 7"]))
    monkeypatch.setattr(Store, "_execute", execute)
    with pytest.raises(InputError):
        session.run(proposal.action, proposal.plan.digest)
    assert server.others("GET", "count") == b"100"


def test_a_key_that_others_changed_is_named_and_a_person_says_what_becomes_of_it(server: Server, session: Session):
    action = done(session, ["INCRBY count 7"], ["DECRBY count 7"])
    other = done(session, ["SET fresh 1"], ["DEL fresh"])
    server.others("SET", "count", "50")
    with pytest.raises(InputError, match="somebody else has changed cache/0/count"):
        session.undo(action)
    with pytest.raises(InputError, match="force it, or leave it"):
        session.undo(action, on_conflict=Choice.SKIP)
    with pytest.raises(NotUndone, match="would not be as wanted"):  # 43, and it was 5
        session.undo(action, on_conflict=Choice.FORCE)
    assert server.others("GET", "count") == b"50"
    server.others("SET", "fresh", "theirs")
    session.undo(other, on_conflict=Choice.FORCE)
    assert server.others("EXISTS", "fresh") == 0


def test_one_of_three_is_taken_back_and_a_later_one_on_the_same_key_stands_against_it(server: Server, session: Session):
    first = done(session, ["INCRBY count 7"], ["DECRBY count 7"])
    done(session, ["SADD tags z"], ["SREM tags z"])
    third = done(session, ["INCRBY count 1"], ["DECRBY count 1"])
    with pytest.raises(InputError, match=f"{third} came later"):
        session.undo(first)
    assert session.undo(first, dependents=True) == [third, first]
    assert server.others("GET", "count") == b"5"
    assert server.others("SISMEMBER", "tags", "z") == 1


def test_nothing_of_what_keys_hold_is_told_or_kept(server: Server, tmp_path: Path):
    with opened(server, tmp_path / "state") as session:
        messages = [session.told()]
        for commands, undo in (
            (["INCR secret"], ["DECR secret"]),
            (["LPUSH secret x"], ["LPOP secret"]),
            (["DEL secret"], ["SET secret x"]),
        ):
            with pytest.raises(InputError) as caught:
                done(session, commands, undo)
            messages.append(f"{caught.value} {caught.value.__cause__}")
        action = done(session, ["RENAME secret hidden"], ["RENAME hidden secret"])
        messages += session.difference(action)
        session.undo(action)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert CANARY not in "\n".join(messages)
    assert CANARY.encode() not in kept


def test_a_user_with_the_least_rights_is_enough(server: Server, tmp_path: Path):
    rights = "~user:* +@read +@write +@transaction -@dangerous -@blocking"
    server.others("ACL", "SETUSER", "agent", "reset", "on", ">word", *rights.split())
    before = held(server)
    with opened(server, tmp_path / "state", user="agent", password_secret="its") as session:
        action = done(session, ["HSET user:1 age 37"], ["HSET user:1 age 36"])
        session.undo(action)
        assert held(server) == before
        with pytest.raises(InputError, match="NoPermission"):
            done(session, ["INCRBY count 7"], ["DECRBY count 7"])


def test_who_is_not_let_in_or_not_there_is_told(server: Server, tmp_path: Path):
    words = (["SET x 1"], ["DEL x"])
    for number, (changed, kind, message) in enumerate(
        (
            ({"user": "nobody", "password_secret": "its"}, InputError, "does not let the user in"),
            ({"host": "/nowhere"}, HostError, "does not answer"),
            ({"dbname": "shop"}, InputError, "the number of a database"),
        )
    ):
        with opened(server, tmp_path / f"{number}", **changed) as session, pytest.raises(kind, match=message):
            done(session, *words)


def dies_at(deadly: int, server: Server, state: Path, work: Callable[[Session], object]) -> bool:
    """Whether a process that is killed at its so-manieth event came so far."""

    def acting(dying: Callable[..., Any]) -> None:
        for owner, name in ((Journal, "_add"), (Journal, "seal"), (Store, "_execute")):
            setattr(owner, name, dying(getattr(owner, name)))
        with opened(server, state) as session:
            work(session)

    return dies_within(deadly, acting)


def test_killed_at_every_event_an_action_is_done_or_not_and_so_is_its_undo(server: Server, tmp_path: Path):
    commands, undo = ["INCRBY count 7", "SET fresh 1"], ["DECRBY count 7", "DEL fresh"]
    before, state = held(server), tmp_path / "state"
    with opened(server, state) as session:
        action = done(session, commands, undo)
        after = held(server)
        session.undo(action)
    seen = set()
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, server, state, lambda session: done(session, commands, undo))
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
    before, whole, armed = held(server), Store._execute, [True]

    def execute(store: Store) -> Any:
        if not armed.pop() if armed else True:
            return whole(store)
        connection = store._connection
        if is_heard:
            connection.send_command("EXEC")
            connection.can_read(timeout=DEADLINE_S)
        connection._sock.shutdown(socket.SHUT_RDWR)
        return whole(store)

    monkeypatch.setattr(Store, "_execute", execute)
    words = (["INCRBY count 7"], ["DECRBY count 7"])
    if is_heard:
        action = done(session, *words)
        assert session.journal.standing(action).state is S.EXECUTED
        assert server.others("GET", "count") == b"12"
        armed.append(True)
        session.undo(action)
        assert session.journal.standing(action).state is S.UNDONE
    else:
        with pytest.raises(InputError, match="it was not done"):
            done(session, *words)
    assert held(server) == before


def test_a_server_that_stops_is_told_and_nothing_is_left_in_between(server: Server, tmp_path: Path):
    before = held(server)
    with opened(server, tmp_path / "state") as session:
        action = done(session, ["INCRBY count 7"], ["DECRBY count 7"])
        server.stop()
        with pytest.raises(HostError, match="does not answer"):
            session.undo(action)
        server.start()
    with opened(server, tmp_path / "state") as session:
        session.undo(action)
        assert held(server) == before


def test_the_copies_are_made_where_nobody_else_gets(server: Server, session: Session):
    done(session, ["INCRBY count 7"], ["DECRBY count 7"])
    place = session.actions.managers["commands"]._place
    assert place.store._ask("CONFIG", "GET", "port")[1] == b"0"
    assert place.store._ask("EXISTS", "secret", "other") == 0
    way = Path(place.store._ask("CONFIG", "GET", "unixsocket")[1].decode())
    assert not way.exists()  # so nobody can come after us
    assert not way.parent.exists()


def test_the_server_for_tests_ends_with_us_and_is_replaced_when_it_ends(server: Server, session: Session):
    done(session, ["INCRBY count 7"], ["DECRBY count 7"])
    first = session.actions.managers["commands"]._place._process
    first.kill()
    first.wait(DEADLINE_S)
    done(session, ["INCRBY count 1"], ["DECRBY count 1"])
    way, other_way = os.pipe()
    child = os.fork()
    if child == 0:
        from autoclave.runtime.databases.redis.throwaway import ThrowAway

        os.write(other_way, f"{ThrowAway('here')._process.pid}".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    pid = int(os.read(way, 20))
    os.close(way)
    os.close(other_way)
    until = time.monotonic() + DEADLINE_S
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < until
            time.sleep(0.01)


def test_it_is_connected_as_other_databases_are(server: Server, tmp_path: Path):
    cache = DatabaseConnection(engine="redis", host=f"{server.way}", dbname="0")
    save_connections(tmp_path / "state", Connections(databases={"cache": cache}))
    (tmp_path / "root").mkdir()
    before = held(server)
    with open_session(tmp_path / "root", tmp_path / "state") as session:
        session.permissions.grant(
            Grant(resources=("databases/cache/0/count",), verbs=("read", "modify"), minimum_guarantee=Guarantee.EXACT)
        )
        assert "key-value database cache (redis)" in session.told()
        action = done(session, ["INCRBY count 7"], ["DECRBY count 7"])
        with pytest.raises(NotPermitted):
            done(session, ["SET fresh 1"], ["DEL fresh"])
        session.undo(action)
    assert held(server) == before
