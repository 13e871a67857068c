"""A folder of pipeline files: what is wrong with one of them is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.pipeline.file.folder import FolderFile, read_folder
from tests.pipeline.pipeline_files import SMALL

WRONG: dict[str, bytes] = {
    "a typo": SMALL.replace("tables", "tabels").encode(),
    "not YAML": b"pipeline: shop\nstream: {mode: bounded\n  - [",
    "empty": b"",
    "only a comment": b"# later\n",
    "a list": b"- shop\n",
    "binary": bytes(range(256)) * 20,
    "a null byte": SMALL.encode() + b"\0",
    "another encoding": SMALL.replace("shop.*", "gesch\u00e4ft.*").encode("latin-1"),
    "UTF-16": SMALL.encode("utf-16"),
    "nested without end": b"[" * 5_000,
    "a bomb of anchors": b"a: &a [x, x]\n"
    + b"".join(b"%c: &%c [*%c, *%c]\n" % (c, c, c - 1, c - 1) for c in range(98, 122)),
    "a name of no pipeline": SMALL.replace("pipeline: shop", "pipeline: 9 lives").encode(),
    "a number of a million digits": b"pipeline: " + b"9" * 1_000_000,
}


def with_ids(name: str, ids: str) -> str:
    text = SMALL.replace("pipeline: shop", f"pipeline: {name}")
    return text.replace('["shop.*"]', f'["shop.*"]\n  server_id: {ids}')


def read(folder: Path, **files: str) -> dict[str, FolderFile]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return {file.path.stem: file for file in read_folder(folder)}


def test_files_that_keep_apart_have_no_problem(tmp_path: Path) -> None:
    found = read(tmp_path, a=with_ids("a", "100-199"), b=with_ids("b", "200-299"))
    assert [(file.name, file.problem) for file in found.values()] == [("a", None), ("b", None)]


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_is_wrong_is_named_and_the_others_are_read(tmp_path: Path, what: str) -> None:
    (tmp_path / "a wrong one.yaml").write_bytes(WRONG[what])
    found = read(tmp_path, good=with_ids("good", "100-199"))
    wrong = found["a wrong one"]
    assert wrong.loaded is None
    assert wrong.problem is not None
    assert "a wrong one.yaml" in wrong.problem.where
    assert found["good"].loaded is not None
    assert found["good"].problem is None


def test_a_file_that_cannot_be_opened_is_wrong_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a_folder.yaml").mkdir()
    (tmp_path / "a_link.yaml").symlink_to(tmp_path / "nowhere")
    found = read(tmp_path, good=with_ids("good", "100-199"))
    assert [name for name, file in found.items() if file.problem] == ["a_folder", "a_link"]
    assert found["good"].loaded is not None


@pytest.mark.parametrize(
    ("text", "name", "mode"),
    [
        (SMALL.replace("tables", "tabels"), "shop", ""),
        ('pipeline: "shop"\nstream: {mode: bounded\n  - [', "shop", "bounded"),
        ("source:\n\tx: 1\nstream:\n  mode: continuous\n", "some_file", "continuous"),
        ("pipeline: 9lives\n", "file_some_file", ""),
    ],
)
def test_of_a_wrong_file_name_and_mode_are_known_where_they_can_be_read(
    tmp_path: Path, text: str, name: str, mode: str
) -> None:
    found = read(tmp_path, some_file=text)["some_file"]
    assert (found.name, found.mode) == (name, mode)


@pytest.mark.parametrize(
    ("second", "line", "words"),
    [
        (with_ids("a", "200-299"), 1, "{other}.yaml has a pipeline of the same name"),
    ],
)
def test_all_that_clash_are_refused_by_each_others_names_and_the_third_is_not(
    tmp_path: Path, second: str, line: int, words: str
) -> None:
    files = {"a": with_ids("a", "100-199"), "b": second, "c": with_ids("c", "300-399")}
    found = read(tmp_path, **files)
    for mine, other in (("a", "b"), ("b", "a")):
        problem = found[mine].problem
        assert problem is not None
        assert words.format(other=other) in problem.what
        assert f"{mine}.yaml:line {line}" in problem.what
        assert found[mine].loaded is not None
    assert found["c"].problem is None


def test_a_copy_of_a_file_for_a_second_source_is_as_good_as_the_first(tmp_path: Path) -> None:
    second = SMALL.replace("pipeline: shop", "pipeline: web").replace("SHOP_DSN", "WEB_DSN")
    found = read(tmp_path, shop=SMALL, web=second)
    assert all(file.problem is None and not file.warnings for file in found.values())


def test_two_sources_may_have_the_same_ids(tmp_path: Path) -> None:
    second = with_ids("b", "100-199").replace("SHOP_DSN", "WEB_DSN")
    found = read(tmp_path, a=with_ids("a", "100-199"), b=second)
    assert not any(file.warnings for file in found.values())


def test_written_ids_in_common_are_a_warning_of_both_and_break_neither(tmp_path: Path) -> None:
    found = read(tmp_path, a=with_ids("a", "100-199"), b=with_ids("b", "199-250"))
    assert [file.problem for file in found.values()] == [None, None]
    assert "overlap those of b.yaml" in "".join(found["a"].warnings)
    assert "overlap those of a.yaml" in "".join(found["b"].warnings)


def test_ids_that_nobody_wrote_are_the_same_each_time_and_no_others_have_them(
    tmp_path: Path,
) -> None:
    names = [f"p{number}" for number in range(40)]
    texts = {name: SMALL.replace("pipeline: shop", f"pipeline: {name}") for name in names}
    first, again = read(tmp_path, **texts), read(tmp_path)
    ranges = [file.loaded.model.server_ids for file in first.values() if file.loaded]
    assert ranges == [file.loaded.model.server_ids for file in again.values() if file.loaded]
    assert len({number for ids in ranges for number in ids}) == 40 * 100
    assert all(1_000_000_000 <= ids.start < ids.stop < 2_100_000_000 for ids in ranges)


def test_more_connections_keep_the_first_id(tmp_path: Path) -> None:
    many = SMALL + "snapshot: {max_connections: 1000}\n"
    few = read(tmp_path, shop=SMALL)["shop"].loaded
    more = read(tmp_path, shop=many)["shop"].loaded
    assert few is not None
    assert more is not None
    assert few.model.server_ids.start == more.model.server_ids.start
    assert len(more.model.server_ids) == more.model.server_ids_needed


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="folder of pipeline files"):
        read_folder(tmp_path / "nowhere")
