"""Hidden tests of LiveCodeBench are read without loading a pickle."""

import base64
import json
import pickle  # noqa: TID251 - the attack is written here, nothing is loaded
import zlib

import pytest

from autoclave.core.errors import DataError
from autoclave.core.files import read_jsonl
from autoclave.problems.readers.livecodebench import unpacked_text


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["", "[]", '[{"input": "ä€\\n"}]', "x" * 70_000])
def test_a_text_of_any_protocol_is_read(protocol, text):
    assert unpacked_text(packed(pickle.dumps(text, protocol)), "row") == text


class Attack:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize("value", [Attack(), ["text"], 7, b"bytes", ("a", "b"), None])
def test_a_pickle_of_anything_but_a_string_is_an_error(value):
    with pytest.raises(DataError, match="row: the packed tests must be one string"):
        unpacked_text(packed(pickle.dumps(value)), "row")


@pytest.mark.parametrize("tail", [b"cos\nsystem\n.", b"."])
def test_data_after_the_string_is_an_error(tail):
    with pytest.raises(DataError, match="nothing after it"):
        unpacked_text(packed(pickle.dumps("text") + tail), "row")


def test_a_bomb_is_stopped_at_the_limit():
    bomb = packed(pickle.dumps("0" * 100_000))
    assert len(unpacked_text(bomb, "row", limit=200_000)) == 100_000
    with pytest.raises(DataError, match="more than 1000 bytes"):
        unpacked_text(bomb, "row", limit=1000)


def test_damaged_data_is_named():
    whole = zlib.compress(pickle.dumps("text" * 100))
    with pytest.raises(DataError, match="not base64"):
        unpacked_text("[{]", "row")
    with pytest.raises(DataError, match="not zlib data"):
        unpacked_text(base64.b64encode(b"plain").decode(), "row")
    with pytest.raises(DataError, match="in the middle"):
        unpacked_text(base64.b64encode(whole[:-3]).decode(), "row")
    with pytest.raises(DataError, match="damaged pickle"):
        unpacked_text(packed(pickle.dumps("text")[:-1]), "row")


def test_the_hidden_tests_of_real_problems_are_json(data):
    rows = [row for _, row in read_jsonl(data / "lcb_codegen_samples.jsonl.gz")]
    tests = [json.loads(unpacked_text(row["private_test_cases"], row["question_id"])) for row in rows]
    assert len(tests) == 3
    assert all(case["testtype"] in ("stdin", "functional") for cases in tests for case in cases)
