"""`autoclave serve`: tokens, and what keeps a server from starting."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

from .conftest import Ended


def test_a_token_is_created_listed_and_revoked(autoclave: Callable[..., Ended]):
    made = autoclave(
        "serve", "token", "create", "--scope", "judge", "--label", "me", "--expires", "1h", "store=s.sqlite"
    )
    assert (made.returncode, made.stderr) == (0, "")
    token = made.stdout.strip()
    listed = autoclave("serve", "token", "list", "store=s.sqlite").stdout
    name = token.split("_")[1]
    assert listed.startswith(f"{name}  valid ")
    assert listed.rstrip().endswith("judge  me")
    assert token.split("_", 2)[2] not in listed
    assert autoclave("serve", "token", "revoke", name, "store=s.sqlite").returncode == 0
    (record,) = json.loads(autoclave("serve", "token", "list", "--json", "store=s.sqlite").stdout)
    assert (record["id"], record["is_revoked"], record["scopes"]) == (name, True, ["judge"])


def test_a_token_needs_a_scope_and_a_lifetime_that_can_be_read(complaint: Callable[..., tuple[int, str]]):
    code, text = complaint("serve", "token", "create", "store=s.sqlite")
    assert (code, "--scope" in text) == (2, True)
    code, text = complaint("serve", "token", "create", "--scope", "judge", "--expires", "soon", "store=s.sqlite")
    assert (code, "30d" in text) == (2, True)
    code, text = complaint("serve", "token", "revoke", "nobody", "store=s.sqlite")
    assert (code, "nobody" in text) == (2, True)


def test_other_machines_need_tokens(complaint: Callable[..., tuple[int, str]]):
    code, text = complaint("serve", "host=0.0.0.0", "store=s.sqlite")
    assert (code, "require_token=true" in text) == (2, True)
    code, text = complaint("serve", "host=0.0.0.0", "require_token=true", "port=0", "store=s.sqlite")
    assert (code, "autoclave serve token create" in text) == (2, True)


def test_a_port_that_is_taken_is_named(complaint: Callable[..., tuple[int, str]]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = complaint("serve", f"port={port}", "store=s.sqlite")
    assert (code, f"127.0.0.1:{port}" in text) == (3, True)


def test_an_unknown_setting_or_command_is_named(complaint: Callable[..., tuple[int, str]]):
    code, text = complaint("serve", "prot=1")
    assert (code, "did you mean port" in text) == (2, True)
    code, text = complaint("serve", "port=1", "token", "list")
    assert (code, "port=1" in text) == (2, True)


def test_missing_servers_are_named(complaint: Callable[..., tuple[int, str]], write_lines):
    write_lines("problems.jsonl")
    write_lines("programs.jsonl")
    words = ("judge", "problems.jsonl", "programs.jsonl", "--out", "v.jsonl", "judge.backend=remote")
    code, text = complaint(*words)
    assert (code, "remote.urls" in text) == (2, True)
    remote = ("judge.remote.urls=[http://127.0.0.1:1]", "judge.remote.patience_s=0.5")
    code, text = complaint(*words, *remote)
    assert (code, "autoclave serve" in text) == (3, True)
    code, text = complaint(*words, *remote, "judge.workers=2")
    assert (code, "workers is ignored" in text) == (2, True)
    code, text = complaint(*words, *remote, "sandbox.memory_limit_mb=99")
    assert (code, "sandbox.memory_limit_mb is ignored" in text) == (2, True)


def test_replicas_need_a_database_and_a_number_of_workers(complaint: Callable[..., tuple[int, str]]):
    for words, fix in (
        ((), "store=postgresql://"),
        (("store=postgresql://u@h/d",), "judge.workers"),
        (("store=postgresql://u@h/d", "judge.workers=1", "ray.min_replicas=5"), "must not exceed max_replicas = 4"),
    ):
        code, text = complaint("serve", "--ray", *words)
        assert code == 2
        assert fix in text


def test_the_bench_measures_every_kind_that_can_be_judged(autoclave: Callable[..., Ended]):
    rates = json.loads(autoclave("serve", "bench", "--seconds", "0.2", "--json", "judge.workers=1").stdout)
    assert {rate["kind"] for rate in rates} >= {"stdin", "call", "check"}
    for rate in rates:
        assert rate["num_accepted"] == rate["num_judged"] > 0
        assert min(rate["per_s"], rate["cpu_s"], rate["worker_mb"], rate["program_mb"]) > 0
