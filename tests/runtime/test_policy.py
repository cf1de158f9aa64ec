"""Nothing is permitted until it is granted, what is forbidden stays so, and no layer relies on another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import InputError
from autoclave.runtime import permissions
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.decision import Decision, Usage, decide, usage_of
from autoclave.runtime.policy.globs import matcher
from autoclave.runtime.policy.grants import Grant, grant_from, is_secret, lint, seconds_of
from autoclave.runtime.policy.needed import as_model_says, mentioned, narrowing, services_of
from autoclave.runtime.policy.request import Access, Request
from autoclave.runtime.session import Session
from tests.runtime.trees import granted, manifest

NOW = 1_000_000.0


def may(grants: list[Grant], *accesses: Access, usage: Usage | None = None, **others: Any) -> Decision:
    return decide(grants, Request(accesses, **others), usage or {}, NOW)


def allow(*resources: str, verbs: str = "*", **others: Any) -> Grant:
    return Grant(resources=resources, verbs=tuple(verbs.split(",")), **others)


def forbid(*resources: str, verbs: str = "*", **others: Any) -> Grant:
    return Grant(effect="forbid", resources=resources, verbs=tuple(verbs.split(",")), **others)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("files/*.py", ["files/a.py", "files/.py"], ["files/a/b.py", "files/a.pyc", "files/A.PY"]),
        ("files/src/**", ["files/src", "files/src/a", "files/src/a/b"], ["files/srcs", "files", "files/src2/a"]),
        ("files/**/x", ["files/x", "files/a/x", "files/a/b/x"], ["files/ax", "files/x/y"]),
        ("**", ["files", "files/a", "programs/sh"], []),
        ("**/x", ["x", "files/x", "a/b/x"], ["files/yx"]),
        ("files/a?c", ["files/abc"], ["files/ac", "files/a/c"]),
        ("files/a[b]", ["files/a[b]"], ["files/ab"]),
        ("files/*", ["files/new\nline", "files/ä"], ["files/a/b"]),
    ],
)
def test_patterns_mean_what_they_say(pattern: str, yes: list[str], no: list[str]):
    assert [each for each in yes if not matcher((pattern,)).fullmatch(each)] == []
    assert [each for each in no if matcher((pattern,)).fullmatch(each)] == []


def test_nothing_is_permitted_without_a_grant_and_what_is_forbidden_never():
    write = Access("create", "files/src/a")
    assert not may([], write).is_allowed
    assert may([allow("files/src/**")], write).is_allowed
    assert not may([allow("files/src/**", verbs="read,delete")], write).is_allowed
    prohibition = forbid("files/**/a")
    denied = may([allow("**"), prohibition], write)
    assert not denied.is_allowed
    assert prohibition.id not in denied.reason
    assert prohibition.id in denied.hint
    assert not may([allow("**"), prohibition], Access("create", "files/src/A")).is_allowed  # the same on some systems
    assert may([allow("**"), forbid("files/**", expires_at=NOW)], write).is_allowed  # its time is over
    assert not may([allow("files/src/**")], Access("delete", "files/src", ("files/src/a", "files/other"))).is_allowed
    assert not may([allow("**"), prohibition], Access("delete", "files/src", ("files/src/a",))).is_allowed


def test_protected_names_need_a_grant_that_has_them():
    for name in (".git", ".ssh", ".env", ".GIT"):
        assert not may([allow("files/**")], Access("modify", f"files/x/{name}/config")).is_allowed
        assert not may([allow("files/**")], Access("read", f"files/x/{name}")).is_allowed
    assert may([allow("files/.git/**")], Access("modify", "files/.git/config")).is_allowed
    assert may([allow("files/.git/**")], Access("read", "files/.git/config")).is_allowed
    assert may([allow("services/**")], Access("read", "services/x/GET/.env")).is_allowed
    assert not may([allow("files/.git/**")], Access("modify", "files/.git/.env")).is_allowed
    assert not may([allow("files/**")], Access("delete", "files/x", ("files/x/.env",))).is_allowed


@pytest.mark.parametrize("name", [".env.local", "id_rsa", "ID_ED25519", ".git-credentials", ".npmrc", "server.key"])
def test_files_of_keys_and_passwords_are_read_by_a_grant_that_has_their_names(name: str):
    place = f"files/x/{name}"
    assert not may([allow("files/**")], Access("read", place)).is_allowed
    assert not may([allow("files/x/*")], Access("read", place)).is_allowed
    assert may([allow("files/**"), allow(place)], Access("read", place)).is_allowed
    assert may([allow("files/**")], Access("delete", place)).is_allowed
    assert is_secret(place)
    assert is_secret("files/x/.ssh/config")
    for plain in (".env.example", "id_rsa.pub", "keys.py"):
        assert may([allow("files/**")], Access("read", f"files/x/{plain}")).is_allowed
        assert not is_secret(f"files/x/{plain}")


def test_a_file_with_a_private_key_is_read_by_a_grant_that_has_its_name():
    read = Access("read", "files/x/notes.txt", holds_secret=True)
    denied = may([allow("files/**")], read)
    assert not denied.is_allowed
    assert "a private key is in it" in denied.hint
    assert "autoclave act grant files/x/notes.txt --verbs read" in denied.hint
    assert "grant files/x/id_rsa --verbs read" in may([allow("files/**")], Access("read", "files/x/id_rsa")).hint
    assert may([allow("files/x/notes.txt")], read).is_allowed


def test_limits_are_counted_over_uses_and_the_next_grant_is_tried():
    first = allow("files/**", max_files=3, max_bytes_written=100)
    access = Access("create", "files/a", files=2, bytes_written=60)
    decision = may([first], access)
    assert decision.charges == {first.id: {"files": 2, "bytes_written": 60}}
    used = {first.id: {"uses": 1, "files": 2}}
    assert not may([first], access, usage=used).is_allowed
    assert "would make 4" in may([first], access, usage=used).hint
    other = allow("files/a")
    assert may([first, other], access, usage=used).rules == (other.id,)
    assert not may([first], access, Access("create", "files/b", files=2)).is_allowed
    once = allow("files/**", max_uses=1)
    assert may([once], access, usage={}).is_allowed
    assert not may([once], access, usage={once.id: {"uses": 1}}).is_allowed
    assert not may([allow("files/**", expires_at=NOW)], access).is_allowed
    assert may([allow("files/**", expires_at=NOW + 1)], access).is_allowed
    assert not may([allow("files/**", minimum_guarantee="exact")], access, guarantee=Guarantee.EQUIVALENT).is_allowed
    assert not may([allow("files/**")], access, guarantee=Guarantee.NONE).is_allowed
    assert may([allow("files/**", minimum_guarantee="exact")], access, guarantee="exact").is_allowed  # of a plugin


NAMES = st.sampled_from(["files", "src", "a", "b.py", ".env", "*", "**", "A"])
PATTERNS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
RESOURCES = st.lists(NAMES.filter(lambda name: "*" not in name), min_size=2, max_size=4).map("/".join)
VERBS = st.sampled_from(["read", "create", "delete"])
GRANTS = st.builds(
    lambda resources, verbs, excluded, most: allow(
        *resources, verbs=",".join(verbs), excluded=excluded, max_files=most
    ),
    st.lists(PATTERNS, min_size=1, max_size=2),
    st.lists(VERBS, min_size=1, max_size=2),
    st.lists(PATTERNS, max_size=1),
    st.one_of(st.none(), st.integers(0, 3)),
)


@given(GRANTS, GRANTS, VERBS, RESOURCES, st.integers(0, 4))
def test_what_a_narrower_grant_permits_the_wider_one_permits(parent: Grant, child: Grant, verb, resource, files: int):
    narrower = child.model_copy(update={"parent": parent.id})
    access = Access(verb, resource, files=files)
    if may([parent, narrower], access).rules[:1] == (narrower.id,) or may([narrower, parent], access).is_allowed:
        assert may([parent], access).is_allowed
    decision = may([narrower, parent], access)
    if narrower.id in decision.rules:
        assert set(decision.charges) == {parent.id, narrower.id}


@given(PATTERNS, RESOURCES)
def test_the_prefix_of_a_pattern_excludes_nothing_that_matches(pattern: str, resource: str):
    grant = allow(pattern)
    if matcher((pattern,)).fullmatch(resource):
        assert resource.startswith(grant.prefixes)


def test_a_grant_that_is_none_is_named():
    for given_, rule in (
        ({"resources": ["files//a"], "verbs": ["read"]}, "names between single slashes"),
        ({"resources": ["files/a**"], "verbs": ["read"]}, "stands alone"),
        ({"resources": ["files/a"], "verbs": ["eat"]}, 'verbs.0 = "eat": must be'),
        ({"resources": ["files/a"], "verbs": ["read"], "max_files": -1}, "max_files"),
        ({"verbs": ["read"]}, "resources"),
    ):
        with pytest.raises(InputError, match=rule):
            grant_from(given_)
    assert [seconds_of(text) for text in ("90s", "30m", "8h", "1.5d")] == [90, 1800, 28_800, 129_600]
    with pytest.raises(InputError, match="a number and a unit"):
        seconds_of("soon")
    assert "allows to delete everything" in lint([allow("files/**")], NOW)[0]


# --- In a session ----------------------------------------------------------------------------------------------------


@pytest.fixture
def session(root: Path):
    with open_session(root, root.parent / "state") as opened:
        yield opened


def attempt(session: Session, operation: dict[str, Any]) -> None:
    proposal = session.propose(operation)
    session.run(proposal.action, proposal.plan.digest)


SH = {"do": "run", "command": ["sh", "-ec", ""]}
ATTACKS: dict[str, dict[str, Any]] = {
    "another folder": {"do": "write", "path": "docs/new", "content": ""},
    "above": {"do": "write", "path": "../new", "content": ""},
    "absolute": {"do": "write", "path": "/tmp/new", "content": ""},
    "a command above": {**SH, "within": ".."},
    "back and forth": {"do": "write", "path": "src/../docs/new", "content": ""},
    "over a link": {"do": "write", "path": "src/out/new", "content": ""},
    "over a link within": {"do": "write", "path": "src/over/new", "content": ""},
    "of a process": {"do": "write", "path": "src/process/cwd/new", "content": ""},
    "another case": {"do": "write", "path": "SRC/new", "content": ""},
    "a protected name": {"do": "write", "path": "src/.env", "content": "KEY=1"},
    "a protected name in another case": {"do": "make_folder", "path": "src/.Git"},
    "a protected name inside": {"do": "delete", "path": "src/kept", "recursive": True},
    "too many files": {"do": "delete", "path": "src/many", "recursive": True},
    "too many bytes": {"do": "write", "path": "src/new", "content": "x" * 5000},
    "moved in from elsewhere": {"do": "move", "path": "a.txt", "to": "src/a.txt"},
    "moved out": {"do": "move", "path": "src/a.py", "to": "a.py"},
    "a verb that is not granted": {"do": "set_mode", "path": "src/a.py", "mode": 0o777},
    "what is forbidden": {"do": "write", "path": "src/secret.txt", "content": ""},
    "another composition of a letter": {"do": "write", "path": f"src/{normalize('NFD', 'ä')}", "content": ""},
    "a program that is not granted": {**SH, "command": ["perl", "-e", "1"], "within": "src"},
    "a program over everything": {**SH, "command": ["sh", "-c", "true"]},
    "a command that deletes": {**SH, "command": ["sh", "-c", "rm -rf many"], "within": "src"},
    "a command on what is forbidden": {**SH, "command": ["sh", "-c", "echo x > SECRET.txt"], "within": "src"},
    "a command on protected names": {**SH, "command": ["sh", "-c", "echo x > .env"], "within": "src"},
    "a package": {"do": "python", "source": "", "packages": ["left-pad"], "within": "src"},
    "a package under another name": {"do": "python", "source": "", "packages": ["Left_Pad"], "within": "src"},
    "a service": {**SH, "command": ["sh", "-c", "true"], "within": "src", "secrets": ["slack"]},
}
HONEST: list[dict[str, Any]] = [
    {"do": "write", "path": "src/b.py", "content": "1"},
    {"do": "append", "path": "src/a.py", "content": "2"},
    {"do": "delete", "path": "src/a.py"},
    {**SH, "command": ["sh", "-c", "echo ok > made"], "within": "src"},
    {"do": "python", "source": "open('py', 'w').write('x')", "within": "src"},
]


@pytest.fixture
def attacked(root: Path, session: Session) -> Session:
    (root / "src/many").mkdir(parents=True)
    (root / "src/kept").mkdir()
    (root / "src/kept/.env").write_text("KEY=0")
    (root / "src/a.py").write_text("1")
    (root / "src/out").symlink_to("/tmp")
    (root / "src/process").symlink_to("/proc/self")
    (root / "src/over").symlink_to("../docs")
    for number in range(20):
        (root / f"src/many/{number}").write_text("")
    limits = {"max_files": 15, "max_bytes_written": 4000}
    verbs = "create,modify,delete,rename"
    for grant in (
        allow("files/src/**", verbs="read"),
        allow("files/src/**", verbs=verbs, excluded=("files/src/ä",), **limits),
        allow("programs/sh", "programs/python", verbs="run"),
        forbid("files/src/secret.txt", verbs=verbs),
    ):
        session.permissions.grant(grant)
    return session


LAYERS = ("nothing", "decision", "check afterwards", "operating system")


@pytest.mark.parametrize("disabled", LAYERS)
def test_an_attack_is_stopped_whichever_layer_is_missing(
    root: Path, attacked: Session, disabled: str, monkeypatch: pytest.MonkeyPatch
):
    """The fourth layer, the proxy, is about services alone; see test_egress.py."""
    everything = Decision(True, rules=tuple(each.id for each in attacked.permissions.grants()))
    if disabled == "decision":
        monkeypatch.setattr(permissions, "decide", lambda *_: everything)
    if disabled == "check afterwards":
        monkeypatch.setattr(permissions, "violation", lambda *_: "")
    if disabled == "operating system":
        from autoclave.runtime.files import scope

        monkeypatch.setattr(scope, "_WALK", scope._WALK & ~os.O_NOFOLLOW)  # links are followed
    before, outside = manifest(root), set(os.listdir("/tmp"))
    for name, operation in ATTACKS.items():
        with pytest.raises(InputError):
            attempt(attacked, operation)
        assert manifest(root) == before, name
    assert "new" not in set(os.listdir("/tmp")) - outside
    assert attacked.audit() == []


@pytest.mark.parametrize("operation", HONEST, ids=str)
def test_what_is_granted_is_done(attacked: Session, operation: dict[str, Any]):
    attempt(attacked, operation)


@pytest.mark.parametrize(
    ("patterns", "is_whole"),
    [
        (["files/**"], True),
        (["**"], True),
        (["files/*/**"], True),
        (["files/**/*"], True),
        (["files/*"], False),
        (["files/*", "files/*/*"], False),
        (["files/??/**"], False),
        (["files/a*/**"], False),
        (["files/src/**"], False),
    ],
)
def test_all_below_a_folder_is_read_only_by_a_grant_for_all_below(patterns: list[str], is_whole: bool):
    grant = Grant(resources=tuple(patterns), verbs=("read",))
    assert may([grant], Access("read", "files/**")).is_allowed is is_whole


def test_a_denial_is_recorded_and_tells_the_person_what_would_permit_it(session: Session):
    with pytest.raises(NotPermitted, match=r"create or modify 'files/new' is not permitted$") as denied:
        session.propose({"do": "write", "path": "new", "content": ""})
    assert denied.value.hint == "autoclave act grant 'files/**' --verbs create,modify"
    (record,) = session.journal.records_of_kinds("denied")
    assert record.body["reason"] == str(denied.value)


@pytest.mark.parametrize(
    "operation",
    [
        {"do": "write", "content": ""},
        {"do": "append", "content": ""},
        {"do": "make_folder"},
        {"do": "make_link", "target": "x"},
        {"do": "delete"},
        {"do": "delete", "recursive": True},
        {"do": "move", "to": "x"},
        {"do": "set_mode", "mode": 0o600},
    ],
)
def test_what_is_not_permitted_does_not_show_whether_something_is_there(session: Session, operation: dict[str, Any]):
    folder = session.actions.managers["write"].scope.root  # pyright: ignore[reportAttributeAccessIssue]
    (folder / "there").mkdir()
    (folder / "there" / "file").write_text("")
    (folder / "link").symlink_to("there")
    paths = ("there", "there/file", "there/none", "none/below", "link", "link/file", "link/none")
    told = set[str]()
    for path in paths:
        fields = ("path", "to") if operation["do"] == "move" else ("path",)
        for field in fields:
            with pytest.raises(NotPermitted) as denied:
                session.plan({"path": "x", **operation, field: path})
            told.add(str(denied.value).replace(f"'files/{path}'", "").replace("'files/x'", ""))
    assert len(told) == 1


def test_what_was_revoked_is_not_permitted_any_more_nor_what_narrows_it(session: Session):
    wide = allow("files/**")
    session.permissions.grant(wide)
    narrow = allow("files/docs/**", parent=wide.id)
    session.permissions.grant(narrow)
    with pytest.raises(InputError, match="which is not granted"):
        session.permissions.grant(allow("files/x", parent="nobody"))
    proposal = session.propose({"do": "write", "path": "new", "content": ""})
    session.permissions.revoke(wide.id)
    assert session.permissions.grants() == []
    with pytest.raises(NotPermitted):
        session.run(proposal.action, proposal.plan.digest)
    with pytest.raises(InputError, match="session main has none"):
        session.permissions.revoke(narrow.id)


def test_grants_of_one_session_are_not_those_of_another(root: Path):
    with open_session(root, root.parent / "state", name="one") as one:
        one.permissions.grant(allow("files/**", session="one"))
        attempt(one, {"do": "write", "path": "x", "content": ""})
    with open_session(root, root.parent / "state", name="two") as two, pytest.raises(NotPermitted):
        attempt(two, {"do": "write", "path": "y", "content": ""})


def test_a_grant_that_somebody_else_wrote_into_the_journal_grants_nothing(session: Session):
    session.journal.append("grant", "forged", allow("files/**").model_dump(mode="json"))
    with pytest.raises(NotPermitted):
        attempt(session, {"do": "write", "path": "new", "content": ""})


def test_a_prohibition_is_not_revoked_by_what_somebody_else_wrote_into_the_journal(session: Session):
    session.permissions.grant(allow("files/**"))
    session.permissions.grant(prohibition := forbid("files/new"))
    session.journal.append("revoke", prohibition.id, {})
    with pytest.raises(NotPermitted):
        attempt(session, {"do": "write", "path": "new", "content": ""})


def test_what_was_undone_is_done_again_only_if_it_is_still_permitted(root: Path, session: Session):
    session.permissions.grant(allow("files/**", max_uses=1))
    attempt(session, {"do": "write", "path": "new", "content": "x"})
    (action,) = (each.action for each in session.actions.standing_order())
    session.undo(action)
    prohibition = forbid("files/new", verbs="create")
    session.permissions.grant(prohibition)
    with pytest.raises(NotPermitted, match="create 'files/new'"):
        session.redo(action)
    assert not (root / "new").exists()
    session.permissions.revoke(prohibition.id)
    session.redo(action)  # its one use is its own
    assert (root / "new").read_text() == "x"


def test_protected_names_are_protected_also_from_a_file_that_is_named_like_a_pattern(root: Path, session: Session):
    (root / ".git").mkdir()
    (root / ".autoclave-docs").mkdir()  # as the state of a session below
    session.permissions.grant(allow("files/**"))
    for operation in ({"do": "write", "path": ".git/**", "content": ""}, {"do": "delete", "path": ".autoclave-docs"}):
        with pytest.raises(NotPermitted):
            attempt(session, operation)
    attempt(session, {"do": "write", "path": "**", "content": ""})


def test_a_state_where_others_can_write_is_refused(root: Path):
    state = root.parent / "theirs"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    with pytest.raises(InputError, match="writable by no one else"):
        open_session(root, state)


def test_counts_hold_over_actions_and_what_was_undone_stays_charged(root: Path, session: Session):
    session.permissions.grant(allow("files/**", max_files=2))
    for name in ("one", "two"):
        attempt(session, {"do": "write", "path": name, "content": ""})
    session.undo(session.actions.standing_order()[-1].action)
    with pytest.raises(NotPermitted):
        attempt(session, {"do": "write", "path": "three", "content": ""})
    (usage,) = usage_of(session.journal.records()).values()
    assert usage["files"] == 2


def test_no_more_risk_stands_uncommitted_than_the_budget(root: Path):
    with open_session(root, root.parent / "state", budget=2.0) as session:
        session.permissions.grant(allow("files/**"))
        attempt(session, {"do": "write", "path": "one", "content": ""})
        attempt(session, {"do": "write", "path": "two", "content": ""})
        with pytest.raises(NotPermitted, match="too much stands"):
            attempt(session, {"do": "write", "path": "three", "content": ""})
        session.commit(session.actions.standing_order()[0].action)
        attempt(session, {"do": "write", "path": "three", "content": ""})


def test_what_was_done_beyond_what_was_decided_is_taken_back_and_raises_the_alarm(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
):
    session.permissions.grant(allow("files/docs/**"))
    proposal = session.propose({"do": "write", "path": "docs/new", "content": "x"})
    manager = session.actions.managers["write"]
    prepare = manager.prepare

    def diverted(*args: Any) -> dict[str, Any]:
        started = dict(prepare(*args))
        started["steps"] = [{**step, "path": "elsewhere"} for step in started["steps"]]
        return {**started, "before": {"elsewhere": ""}}

    monkeypatch.setattr(manager, "prepare", diverted)
    before = manifest(root)
    with pytest.raises(NotPermitted, match="did create 'files/elsewhere', which is not permitted"):
        session.run(proposal.action, proposal.plan.digest)
    assert manifest(root).keys() == before.keys()
    assert [record.body["outside"] for record in session.journal.records_of_kinds("alarm")] == [
        "create 'files/elsewhere'"
    ]


# --- What a task needs -----------------------------------------------------------------------------------------------

SERVICES = ["slack", "gmail", "drop-box"]


def test_services_are_found_as_words_of_their_own():
    assert mentioned("Post it in Slack.", SERVICES) == {"slack"}
    assert mentioned("slackers use drop-box, not drop", SERVICES) == {"drop-box"}
    assert mentioned("tell my team", SERVICES) == set()
    assert services_of([allow("services/slack", "files/**"), allow("services/*"), forbid("services/x")]) == ["slack"]


def test_a_model_can_only_name_services_that_there_are():
    asked: list[str] = []

    def says(answer: str):
        return as_model_says(lambda prompt: asked.append(prompt) or answer)

    assert says('Sure: ["slack", "root"]')("task", SERVICES) == {"slack"}
    assert says("[]")("task", SERVICES) == set()
    for answer in ("slack", '["slack"', "[1]", "[[]]"):
        with pytest.raises(InputError, match="list of services"):
            says(answer)("task", SERVICES)
    assert "drop-box" in asked[0]


@given(st.lists(GRANTS, max_size=3), st.sets(st.sampled_from(SERVICES)), VERBS, st.sampled_from(SERVICES), RESOURCES)
def test_a_guess_only_narrows(grants: list[Grant], guess: set[str], verb: str, service: str, resource: str):
    grants = [*grants, allow("services/*")]
    narrowed = [*grants, narrowing(guess)]
    for access in (Access("use", f"services/{service}"), Access(verb, resource)):
        assert may(narrowed, access).is_allowed <= may(grants, access).is_allowed
    assert may(narrowed, Access("use", f"services/{service}")).is_allowed == (service in guess)
    assert may(narrowed, Access(verb, resource)).is_allowed == may(grants, Access(verb, resource)).is_allowed


def test_a_session_is_narrowed_by_prohibitions_alone(opened: Session):
    granted(opened)
    with pytest.raises(InputError, match="only prohibitions narrow a session"):
        opened.permissions.narrow(allow("services/x"), "because")
    opened.permissions.narrow(forbid("files/docs/**"), "because")
    with pytest.raises(NotPermitted):
        opened.plan({"do": "delete", "path": "docs/c.txt"})
    opened.plan({"do": "delete", "path": "b.txt"})


@pytest.mark.parametrize("pattern", ["services/odd/*/items/@me", "services/odd/GET/a b", "services/**/%40me/ä"])
def test_a_pattern_of_a_path_that_could_never_match_is_refused(pattern: str):
    with pytest.raises(ValueError, match="must be spelt as plans spell paths"):
        Grant(effect="forbid", resources=(pattern,), verbs=("*",))
