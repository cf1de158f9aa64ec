"""TLS: only clients that trust the certificate get a response."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
import trustme

from autoclave.compose.service import open_parts
from autoclave.config import RemoteJudgeConfig, ServeConfig, TlsConfig
from autoclave.core import ConfigError, InputError, Program
from autoclave.judge import JudgeJob
from autoclave.service.client import RemoteJudge

from .conftest import DEADLINE_S, RIGHT, problem


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificate_file(authority: trustme.CA, tmp_path: Path) -> str:
    """What clients trust."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


def written(authority: trustme.CA, folder: Path, *names: str) -> TlsConfig:
    """A certificate for a server of these names, with its key."""
    issued = authority.issue_cert(*names)
    certificate, key = folder / f"{names[0]}.pem", folder / f"{names[0]}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return TlsConfig(certificate_file=str(certificate), key_file=str(key))


@pytest.fixture
def served(start_process, authority: trustme.CA, tmp_path: Path) -> str:
    """The address of a server with a certificate."""
    tls = written(authority, tmp_path, "127.0.0.1")
    url = start_process(f"tls.certificate_file={tls.certificate_file}", f"tls.key_file={tls.key_file}").url
    assert url.startswith("https://")
    return url


def test_a_client_that_trusts_the_certificate_gets_verdicts(served: str, certificate_file: str, remote_judge):
    judge = remote_judge(served, certificate_file=certificate_file)
    assert judge.submit(JudgeJob(problem(), Program(RIGHT))).result(DEADLINE_S).is_accepted


@pytest.mark.parametrize(
    ("trusted", "name", "words"),
    [("nothing", "127.0.0.1", "unable to get local issuer"), ("another", "127.0.0.1", "unable to get local issuer"),
     ("it", "localhost", "not valid for 'localhost'")],
)  # fmt: skip
def test_a_certificate_that_is_not_trusted_is_refused_at_once(
    served: str, certificate_file: str, tmp_path: Path, trusted: str, name: str, words: str
):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    trust = {"nothing": "", "another": str(other), "it": certificate_file}[trusted]
    url = served.replace("127.0.0.1", name)
    with pytest.raises(ConfigError, match=rf"{name}.* certificate is not trusted .*certificate_file") as refused:
        RemoteJudge(RemoteJudgeConfig(urls=(url,), certificate_file=trust, retries=1000))
    assert words in str(refused.value)


def test_a_plain_http_request_to_a_tls_server_gets_no_response(served: str):
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{served.replace('https', 'http')}/v1/health", trust_env=False)


def test_an_unusable_certificate_is_a_config_error(authority: trustme.CA, tmp_path: Path):
    good, other = written(authority, tmp_path, "127.0.0.1"), written(authority, tmp_path, "localhost")
    shutil.copy(__file__, tmp_path / "text.pem")
    store = str(tmp_path / "store.sqlite")
    for files, error, words in (
        ((good.certificate_file, other.key_file), ConfigError, "mismatch"),
        ((str(tmp_path / "text.pem"), good.key_file), ConfigError, "in PEM"),
        ((str(tmp_path / "nothing.pem"), good.key_file), InputError, "tls.certificate_file"),
    ):
        tls = TlsConfig(certificate_file=files[0], key_file=files[1])
        with pytest.raises(error, match=words), open_parts(ServeConfig(store=store, tls=tls)):
            pass
