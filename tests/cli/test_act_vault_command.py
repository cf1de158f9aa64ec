"""The commands of the vault."""

import os
from pathlib import Path

VALUE = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def test_the_commands_of_the_vault_never_show_a_value(autoclave, tmp_path: Path):
    def act(*words: str, **options: object):
        return autoclave("act", "vault", *words, "--vault", "vault", **options)

    assert act("add", "github", "--host", "api.github.com", "--method", "GET", input=f"{VALUE}\n").returncode == 0
    listed = act("list")
    assert listed.stdout == "github  api.github.com  GET  header Authorization\n"
    assert act("rotate", "github", input="another-value-0123").returncode == 0
    assert act("rotate", "--lock", "file").returncode == 0
    again = act("add", "github", "--host", "api.github.com", input="x")
    assert (again.returncode, "rotate or remove it" in again.stderr) == (2, True)
    nowhere = act("list", "--key", "passphrase", input="")
    assert nowhere.returncode == 2
    assert "AUTOCLAVE_VAULT_PASSPHRASE_FILE" in nowhere.stderr
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    environment = {**os.environ, "AUTOCLAVE_VAULT_PASSPHRASE_FILE": str(wrong)}
    refused = act("list", "--key", "passphrase", env=environment)
    assert "was not made with a passphrase" in refused.stderr
    assert act("remove", "github").returncode == 0
    assert act("list").stdout == ""
