"""Sets on the hub: the same code path, with a local folder instead of a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.core import HostError, InputError
from autoclave.problems.readers.row import RawRow

pytest.importorskip("datasets", reason="needs the extra `curate`")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "set" / "data").mkdir(parents=True)
    for split, ids in (("train", [1, 2, 3]), ("test", [4])):
        table = pyarrow.table({"id": ids, "text": ["x"] * len(ids)})
        pyarrow.parquet.write_table(table, tmp_path / "set" / "data" / f"{split}-00000-of-00001.parquet")
    return tmp_path / "set"


def test_rows_are_streamed_from_tables(folder):
    from autoclave.problems.readers.hub import hub_set

    found = hub_set(str(folder), "")
    rows = list(found.rows())
    assert (found.split, found.config) == ("train", "default")
    assert [row.fields["id"] for row in rows if isinstance(row, RawRow)] == [1, 2, 3]
    assert [row.place for row in rows if isinstance(row, RawRow)] == ["train:1", "train:2", "train:3"]
    assert found.revision


def test_a_split_is_chosen_by_name(folder):
    from autoclave.problems.readers.hub import hub_set

    rows = hub_set(f"{folder}:default:test", "").rows()
    assert [row.fields["id"] for row in rows if isinstance(row, RawRow)] == [4]
    with pytest.raises(InputError, match=r"has no split 'dev'; it has .*train"):
        hub_set(f"{folder}:default:dev", "")
    with pytest.raises(InputError, match="not found"):
        hub_set(f"{folder}:other", "")


def test_releases_of_sets_without_tables_are_files(folder):
    from autoclave.problems.readers.hub import hub_set

    for name in ("test.jsonl", "test2.jsonl", "test3.jsonl"):
        (folder / name).write_text(f'{{"name": "{name}"}}\n')
    rows = hub_set(str(folder), "", ("test.jsonl", "test2.jsonl")).rows()
    assert [row.fields["name"] for row in rows if isinstance(row, RawRow)] == ["test.jsonl", "test2.jsonl"]


def test_a_hub_that_cannot_be_reached_is_a_fault_of_the_host(monkeypatch):
    import datasets

    from autoclave.problems.readers.hub import hub_set

    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach 'nobody/nothing' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", unreachable)
    with pytest.raises(HostError, match=r"hub = 'nobody/nothing'.*cannot be reached"):
        hub_set("nobody/nothing", "")
