"""The commands of the vault."""

import os
from pathlib import Path

from autoclave.runtime.connections import Connections, VaultPlace, save_connections
from autoclave.runtime.vault.authority import Authority

VALUE = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def test_the_commands_of_the_vault_never_show_a_value(forked, tmp_path: Path):
    def act(*words: str, **options: object):
        return forked("act", "vault", *words, "--vault", "vault", **options)

    assert act("add", "github", "--host", "api.github.com", "--method", "GET", input=f"{VALUE}\n").returncode == 0
    listed = act("list")
    assert listed.stdout == "github  api.github.com  GET  header Authorization\n"
    assert act("rotate", "github", input="another-value-0123").returncode == 0
    assert act("rotate", "--lock", "file").returncode == 0
    assert len((tmp_path / "vault.key").read_text().splitlines()) == 1
    again = act("add", "github", "--host", "api.github.com", input=VALUE)
    assert (again.returncode, "rotate or remove it" in again.stderr) == (2, True)
    nowhere = act("list", "--key", "passphrase", input="")
    assert nowhere.returncode == 2
    assert "AUTOCLAVE_VAULT_PASSPHRASE_FILE" in nowhere.stderr
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    environment = {**os.environ, "AUTOCLAVE_VAULT_PASSPHRASE_FILE": str(wrong)}
    refused = act("list", "--key", "passphrase", env=environment)
    assert "it is locked with a key file" in refused.stderr
    assert act("remove", "github").returncode == 0
    assert act("list").stdout == ""


def test_files_that_cannot_be_used_are_one_clear_line(complaint, forked, tmp_path: Path, monkeypatch):
    (tmp_path / "tree").mkdir()
    (tmp_path / "plan").write_text('{"do": "make_folder", "path": "a"}\n')
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    (tmp_path / "a folder").mkdir()
    (tmp_path / "text").write_text("no certificate")
    monkeypatch.setenv("AUTOCLAVE_VAULT_PASSPHRASE_FILE", "odd")
    (tmp_path / "v").write_text("no vault")
    (tmp_path / "tree/v").write_text("no vault")
    (tmp_path / "program").write_text('{"do": "python", "source": "1", "secrets": ["api"]}\n')
    (tmp_path / "authority").write_bytes(Authority().certificate)
    (tmp_path / "tree/authority").write_bytes(Authority().certificate)
    plan = ("plan", "program", "--root", "tree")
    granted = forked("act", "grant", "services/**", "files/**", "programs/**", "--guarantee", "none", "--root", "tree")
    assert granted.returncode == 0
    for words, told in (
        (("connect", "trust", "nowhere.pem", "--root", "tree"), "trust nowhere.pem: cannot be read"),
        (("connect", "trust", "text", "--root", "tree"), "trust text: must contain PEM certificates"),
        (("plan", "plan", "--root", "tree", "--packages", "odd"), "odd: must be UTF-8"),
        (("connect", "vault", "nowhere", "--root", "tree"), "nowhere"),
        (("connect", "vault", "a folder", "--root", "tree"), "a folder"),
        (plan, "no vault is connected"),
        (("connect", "vault", "v", "--key", "passphrase", "--root", "tree"), "odd: must be UTF-8"),
        (("connect", "vault", "v", "--root", "tree"), "v.key: is missing, and nothing else opens the vault"),
        (("connect", "trust", "tree/authority", "--root", "tree"), "must be outside of"),
    ):
        code, error = complaint("act", *words)
        assert code == (1 if words == plan else 2), error
        assert told in error
        assert "Traceback" not in error
        assert error.count("\n") == 1, error


def test_what_became_of_a_vault_after_it_was_connected_is_one_clear_line(complaint, forked, tmp_path: Path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "program").write_text('{"do": "python", "source": "1", "secrets": ["api"]}\n')
    assert (
        forked(
            "act", "grant", "services/**", "files/**", "programs/**", "--guarantee", "none", "--root", "tree"
        ).returncode
        == 0
    )
    assert forked("act", "vault", "add", "api", "--host", "a.example", "--vault", "v", input=VALUE).returncode == 0
    assert complaint("act", "connect", "vault", "v", "--root", "tree") == (0, "")
    service = ("connect", "service", "notes", "base_url=https://a.example", "--root", "tree")
    code, error = complaint("act", *service, "secret=apii")
    assert (code, "secret apii: the vault" in error, "did you mean api?" in error) == (2, True, True)
    assert complaint("act", *service, "secret=api") == (0, "")
    (tmp_path / "v").write_text("no vault")
    code, error = complaint("act", "plan", "program", "--root", "tree")
    assert (code, "v: the key is wrong, or the file is damaged" in error) == (1, True), error
    (tmp_path / "tree/v").write_text("no vault")
    state = tmp_path / ".autoclave-tree"
    save_connections(state, Connections(vault=VaultPlace(path=str(tmp_path / "tree/v"))))
    code, error = complaint("act", "plan", "program", "--root", "tree")
    assert (code, "must be outside of" in error) == (2, True)


def test_a_vault_in_the_folder_is_refused_also_when_it_is_not_used(complaint, tmp_path: Path, monkeypatch):
    (tmp_path / "plan").write_text("")
    vault = tmp_path / "tree/data/autoclave/vault"
    vault.parent.mkdir(parents=True)
    vault.write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "tree/data"))
    code, error = complaint("act", "plan", "plan", "--root", "tree")
    assert (code, "must be outside of" in error) == (2, True)
    vault.unlink()
    monkeypatch.setenv("AUTOCLAVE_VAULT_PASSPHRASE_FILE", "tree/passphrase")
    code, error = complaint("act", "plan", "plan", "--root", "tree")
    assert (code, "tree/passphrase: must be outside of" in error) == (2, True)


def test_a_key_that_cannot_be_used_is_not_taken(forked):
    for key, told in (("sk-", "no dummy can be told"), ("!!!!", "no dummy can be told")):
        refused = forked("act", "vault", "add", "s", "--host", "ex.com", "--vault", "vault", input=key)
        assert (refused.returncode, told in refused.stderr) == (2, True)
    listed = forked("act", "vault", "list", "--vault", "vault")
    assert (listed.returncode, listed.stdout) == (0, "")
