"""The vault keeps secrets out of sight; dummies look like them and can be told from them anywhere."""

from __future__ import annotations

import base64
import html
import ipaddress
import json
import os
import re
import shutil
import string
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import InputError
from autoclave.core.json import validated
from autoclave.runtime.vault import KeyFile, Passphrase, Secret, Vault
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.targets import is_public
from autoclave.runtime.vault.traces import Replacer, found_in

VALUE = "sk-proj-abcDEF0123456789abcDEF0123456789"


def secret(service: str = "openai", value: str = VALUE, **others: object) -> Secret:
    return Secret.model_validate({"service": service, "value": value, "hosts": ["api.example.com"], **others})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def key(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "key")


def test_secrets_are_kept_changed_and_forgotten(path: Path, key: KeyFile):
    told: list[tuple[str, str, dict[str, object]]] = []
    vault = Vault(path, key, lambda *words: told.append(words))
    vault.add(secret())
    vault.add(secret("slack", "xoxb-123456"))
    with pytest.raises(InputError, match="has a secret; rotate or remove it"):
        vault.add(secret())
    again = Vault(path, key)
    assert again.names() == ["openai", "slack"]
    assert again.secret("openai", "a test").value == VALUE
    vault.rotate("slack", "xoxb-456789")
    assert again.secret("slack", "a test").value == "xoxb-456789"
    vault.remove("slack")
    assert again.names() == ["openai"]
    for act in (lambda: vault.rotate("slack", "x"), lambda: vault.remove("slack"), lambda: vault.secret("slack", "")):
        with pytest.raises(InputError, match="service slack: has no secret; the vault has openai"):
            act()
    assert VALUE not in json.dumps(vault.about("openai"))
    assert [(kind, service, body["access"]) for kind, service, body in told] == [
        ("secret", "openai", "add"),
        ("secret", "slack", "add"),
        ("secret", "slack", "rotate"),
        ("secret", "slack", "remove"),
    ]
    assert VALUE not in repr(told) + repr(secret())


def test_the_file_tells_nothing(path: Path, key: KeyFile):
    Vault(path, key).add(secret())
    content = path.read_bytes()
    for word in (VALUE.encode(), b"openai", b"api.example.com"):
        assert word not in content
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_changed_byte_and_every_cut_is_one_clear_error(path: Path, key: KeyFile):
    Vault(path, key).add(secret())
    whole = path.read_bytes()
    message = "the key is wrong, or the file is damaged"
    for place in range(len(whole)):
        for flip in (1, 0x80):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            with pytest.raises(InputError, match=message) as error:
                Vault(path, key)
            assert VALUE not in str(error.value)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=message):
            Vault(path, key)
    path.write_bytes(whole + b"x")
    with pytest.raises(InputError, match=message):
        Vault(path, key)
    path.write_bytes(whole)
    assert Vault(path, key).names() == ["openai"]


def test_a_passphrase_opens_a_vault_and_another_does_not(path: Path, key: KeyFile):
    chosen = Passphrase("open sesame")
    vault = Vault(path, key)
    vault.add(secret())
    vault.rekey(chosen)
    assert vault.names() == Vault(path, chosen).names() == Vault(path, Passphrase("open sesame")).names() == ["openai"]
    assert "sesame" not in repr(chosen)
    for other in (Passphrase("open barley"), key):
        with pytest.raises(InputError, match=r"the key is wrong, .* it is locked with a passphrase"):
            Vault(path, other)


def test_a_key_file_is_its_owners_alone_and_is_asked_for_by_name(path: Path, key: KeyFile):
    Vault(path, key).add(secret())
    assert key.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match="it is locked with a key file"):
        Vault(path, Passphrase("open sesame"))
    key.path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Vault(path, key)
    key.path.write_bytes(bytes(32))
    key.path.chmod(0o600)
    with pytest.raises(InputError, match="must have an age identity"):
        Vault(path, key)


def test_no_key_is_made_to_open_a_vault(path: Path, key: KeyFile, tmp_path: Path):
    Vault(path, key).add(secret())
    kept = key.path.read_bytes()
    key.path.unlink()
    with pytest.raises(InputError, match="is missing, and nothing else opens the vault"):
        Vault(path, key)
    assert not key.path.exists()
    Vault(tmp_path / "other", key).add(secret())
    with pytest.raises(InputError, match="the key is wrong"):
        Vault(path, key)
    key.path.write_bytes(b"# as age-keygen writes it\n" + kept)
    assert Vault(path, key).names() == ["openai"]


@pytest.mark.skipif(not shutil.which("age"), reason="the age tool is not installed")
def test_the_age_tool_opens_a_vault_and_makes_its_key(path: Path, key: KeyFile):
    subprocess.run(["age-keygen", "-o", key.path], check=True, capture_output=True)
    Vault(path, key).add(secret())
    opened = subprocess.run(["age", "--decrypt", "-i", key.path, path], check=True, capture_output=True)
    assert json.loads(opened.stdout)["secrets"]["openai"]["value"] == VALUE


def test_a_process_that_dies_while_it_locks_a_vault_anew_leaves_one_that_opens(path: Path, tmp_path: Path):
    key = tmp_path / "key"
    Vault(path, KeyFile(key)).add(secret())
    keys = {key.read_bytes()}
    ends: list[int] = []
    while not ends or ends[-1]:
        child = os.fork()
        if not child:
            _die_at(len(ends) + 1)
            Vault(path, KeyFile(key)).rekey(KeyFile(key))
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert Vault(path, KeyFile(key)).names() == ["openai"]
        keys.add(key.read_bytes())
    assert len(ends) > 8
    assert len(keys) > 2  # it died after it wrote the vault as well
    assert len(key.read_text().splitlines()) == 1


def _die_at(number: int) -> None:
    """End this process before it opens or renames a file for the n-th time."""
    left = number

    def look(event: str, _: object) -> None:
        nonlocal left
        if event in ("open", "os.rename"):
            left -= 1
            if not left:
                os._exit(9)

    sys.addaudithook(look)


def test_a_vault_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=f"vault {tmp_path}: .*Is a directory"):
        Vault(tmp_path, KeyFile(tmp_path / "key"))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Not a directory"):
        Vault(tmp_path / "file" / "vault", KeyFile(tmp_path / "key")).add(secret())


def test_processes_do_not_lose_what_others_add(path: Path):
    source = (
        "import sys\nfrom pathlib import Path\nfrom autoclave.runtime.vault import *\n"
        "vault = Vault(Path(sys.argv[1]), KeyFile(Path(sys.argv[1] + '.key')))\n"
        "for n in range(5): vault.add(Secret(service=f's{sys.argv[2]}-{n}', value='value-0123', hosts=('h',)))"
    )
    key = KeyFile.beside(path)
    Vault(path, key).add(secret())
    processes = [subprocess.Popen([sys.executable, "-c", source, path, f"{number}"]) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert len(Vault(path, key).names()) == 21


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"value": "a\nb"}, "no control characters"),
        ({"hosts": ["https://x"]}, "must be a name in small letters"),
        ({"hosts": ["EXAMPLE.com"]}, "must be a name in small letters"),
        ({"service": "My Service"}, "service = "),
        ({"name": "a b"}, "name = "),
        ({"methods": ["GET /"]}, "methods"),
        ({"value": "sk-12345"}, "no dummy can be told from it"),
        ({"value": "!!!!!!!!!!"}, "no dummy can be told from it"),
        ({"value": f"{VALUE} "}, "begins or ends with a space"),
        ({"hosts": ["ex.com:0"]}, "port must be from 1 to 65535"),
        ({"hosts": ["ex.com:65536"]}, "port must be from 1 to 65535"),
        ({"paths": ["v1"]}, "no request can match it"),
        ({"paths": ["/v1/**", "/a%20b"]}, "no request can match it"),
        ({"paths": ["/a/../b"]}, "no request can match it"),
        ({"name": "Host"}, "is not passed on"),
        ({"name": "Proxy-Authorization"}, "is not passed on"),
        ({"name": "x-http-method-override"}, "is not passed on"),
        ({"service": "a_b"}, "a-b has the variable A_B_TOKEN already"),
    ],
)
def test_a_vault_takes_no_secret_that_no_request_could_have(
    path: Path, key: KeyFile, given: dict[str, object], rule: str
):
    vault = Vault(path, key)
    vault.add(secret("a-b", methods=["get", "Post"]))
    with pytest.raises(InputError, match=rule) as error:
        vault.add(validated(Secret, {"service": "s", "value": VALUE, "hosts": ["h"], **given}, "service s"))
    assert VALUE not in str(error.value)
    assert vault.names() == ["a-b"]
    if "value" in given:
        with pytest.raises(InputError, match=rule):
            vault.rotate("a-b", str(given["value"]))
    assert vault.secret("a-b", "a test").value == VALUE
    assert vault.secret("a-b", "a test").methods == ("GET", "POST")


# --- Dummies ---------------------------------------------------------------------------------------------------------

ALPHABET = string.ascii_letters + string.digits + "-_."
TOKENS = st.text(ALPHABET, min_size=8, max_size=60).filter(
    lambda text: sum(letter.isalnum() for letter in text[len(text) // 3 :]) > 5
)


@given(TOKENS, st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_dummy_has_the_form_of_its_secret(value: str, key: bytes, other: bytes):
    dummy = dummy_of(value, "s", key)
    assert dummy == dummy_of(value, "s", key) != value
    assert len(dummy) == len(value)
    for one, two in zip(value, dummy, strict=True):
        assert one == two or one.isalnum() == two.isalnum()
        assert (one in "-_.") == (two in "-_.")
    if key != other and sum(letter.isalnum() for letter in value[len(value) // 3 :]) > 20:
        assert dummy != dummy_of(value, "s", other)


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        (VALUE, "sk-proj-"),
        ("ghp_" + "a1B2" * 9, "ghp_"),
        ("xoxb-1234567890-abcdefABCDEF", "xoxb-"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA"),
        ("sk_live_0123456789abcdef0123456789abcdef", "sk_live_"),
    ],
)
def test_known_prefixes_stay(value: str, prefix: str):
    dummy = dummy_of(value, "s", bytes(32))
    assert dummy.startswith(prefix)
    assert dummy[len(prefix) :] != value[len(prefix) :]


@pytest.mark.parametrize(
    "value", ["550e8400-e29b-41d4-a716-446655440000", "Correct.Horse.Battery.77", "sk-correct-horse-battery-staple-77"]
)
def test_a_dummy_has_nothing_of_a_value_but_its_known_prefix(value: str):
    """A word may come out again by chance, and then in one session alone."""
    words = re.findall("[A-Za-z0-9]{4,}", value)
    dummies = [dummy_of(value, "s", bytes([number] * 32)) for number in range(8)]
    for word in words:
        assert sum(word in dummy for dummy in dummies) <= 1


_FOR_URLS = bytes.maketrans(b"+/", b"-_")


def as_php(text: str) -> bytes:
    return json.dumps(text).replace("/", "\\/").encode()


def in_entities(text: str) -> bytes:
    return "".join(f"&#x{ord(each):X};" if each in "/+" else f"&#{ord(each):03};" for each in text).encode()


SPELLED = {
    "slashes of PHP": as_php,
    "JSON in JSON": lambda text: json.dumps(as_php(text).decode()).encode(),
    "slashes by number": lambda text: text.replace("/", "\\u002f").encode(),
    "all by number": lambda text: "".join(f"\\u{ord(each):04X}" for each in text).encode(),
    "some by number": lambda text: "".join(each if each.islower() else f"\\u{ord(each):04x}" for each in text).encode(),
    "in a string of C": lambda text: "".join(f"\\x{ord(each):02x}" for each in text).encode(),
    "percent, small": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")).encode(),
    "percent, all": lambda text: "".join(f"%{ord(each):02X}" for each in text).encode(),
    "percent, twice": lambda text: quote(quote(text, safe="")).encode(),
    "HTML": lambda text: html.escape(text).replace("/", "&sol;").replace("+", "&plus;").encode(),
    "HTML, all by number": in_entities,
    "UTF-16": lambda text: text.encode("utf-16-le"),
    "UTF-16, the other way": lambda text: text.encode("utf-16-be"),
    "digits": lambda text: text.encode().hex().encode(),
    "capitals": lambda text: text.upper().encode(),
    "base64 in lines": lambda text: base64.encodebytes(b"user:" + text.encode() + b"x" * 60),
    "base64 in JSON": lambda text: as_php(base64.b64encode(text.encode() + b"???").decode()),
    "base64 in a URL": lambda text: quote(base64.b64encode(b"??>" + text.encode()), safe="").encode(),
}


@pytest.mark.parametrize("way", SPELLED)
@pytest.mark.parametrize(
    "value", ["a\\b%41&amp;cdefgh", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "sk-proj-ab<&>cDE/0123456789\"'~?x"]
)
def test_a_value_is_replaced_however_it_is_spelled(value: str, way: str):
    dummy = dummy_of(value, "s", bytes(32))
    before, after = b'{"key" : ', b" } and more"
    content = before + SPELLED[way](value) + after
    assert found_in(content, {"s": value}) == ["s"]
    replaced = Replacer({value: dummy}).whole(content)
    assert found_in(replaced, {"s": value}) == []
    assert dummy.encode() in replaced
    assert replaced.startswith(before)
    assert replaced.endswith(after)


@given(TOKENS, st.binary(max_size=40), st.binary(max_size=40))
def test_a_value_is_found_and_replaced_in_base64_whatever_is_around_it(value: str, before: bytes, after: bytes):
    dummy = dummy_of(value, "s", bytes(32))
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        content = encode(before + value.encode() + b"\0\0" + value.encode() + after)
        assert found_in(content, {"s": value}) == ["s"]
        replaced = Replacer({value: dummy}).whole(content)
        assert found_in(replaced, {"s": value}) == []
        assert replaced.count(dummy.encode()) == 2
        kept = replaced.split(dummy.encode())[0]
        assert (before + b"\xff").startswith(base64.urlsafe_b64decode(kept.translate(_FOR_URLS)[: len(kept) // 4 * 4]))


def test_a_long_value_is_found_and_replaced_whole_and_no_other_that_begins_as_it_does():
    value = VALUE + "abc-DEF_" * 200
    for way in ("plain", "percent, all", "digits", "base64 in lines"):
        spelled = SPELLED.get(way, str.encode)
        content = b"<" + spelled(value) + b">"
        assert found_in(content, {"s": value}) == ["s"]
        assert len(Replacer({value: "x"}).whole(content)) < 120
        similar = b"<" + spelled(value[:-9] + "?" * 9) + b">"
        assert found_in(similar, {"s": value}) == []
        assert Replacer({value: "x"}).whole(similar) == similar


def test_looking_takes_time_in_proportion_to_what_comes():
    replacer = Replacer({VALUE: "x"})
    content = json.dumps([{"id": number, "url": f"https://x.example/{number}%20"} for number in range(40_000)]).encode()
    began = time.process_time()
    assert replacer.whole(content) == content
    assert time.process_time() - began < len(content) / 1e6  # a MB in a second; measured: 60


# --- Addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"]
)
def test_addresses_of_the_internet_are_public(address: str):
    assert is_public(address)


@pytest.mark.parametrize(
    "inner",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "0.0.0.0"],
)
def test_an_address_is_private_also_in_one_of_another_kind(inner: str):
    number = int(ipaddress.IPv4Address(inner))
    for network in ("::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::"):
        assert not is_public(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(network)) | number)))
    assert not is_public(str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80))))
    assert not is_public(str(ipaddress.IPv6Address((0x20010000 << 96) | (~number & 0xFFFFFFFF))))
    assert not is_public(inner)
    for address in ("::1", "fe80::1", "fc00::1", "ff02::1", "64:ff9b:1::101:101", "2001:db8::1"):
        assert not is_public(address)
