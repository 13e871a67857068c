"""The command `topology`: edges of a folder are refused with their lines, and drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from airflow_cdc_provider.cli.main import main
from tests.said import Said

EDGE = """\
pipeline: {src}_to_{dst}
source:
  dsn_env: {src}_DSN
  tables: ["shop.*"]
sink:
  dsn_env: {dst}_DSN
topology:
  name: shops
  src_node: {src}
  dst_node: {dst}
"""
STAR = ("berlin paris", "paris berlin", "berlin rome", "rome berlin", "rome oslo")
Topology = Callable[..., Said]


def write(folder: Path, *pairs: str, more: str = "") -> None:
    """Write the files of edges, each given as `from to`."""
    for pair in pairs:
        src, dst = pair.split()
        (folder / f"{src}_{dst}.yaml").write_text(EDGE.format(src=src, dst=dst) + more)


@pytest.fixture
def topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Topology:
    for node in ("berlin", "paris", "rome", "oslo"):
        monkeypatch.setenv(f"{node}_DSN", f"mysql://u:planted@db-{node}/")

    def run(action: str, *options: str) -> Said:
        code = main(["topology", action, str(tmp_path), *options])
        out, err = capsys.readouterr()
        return Said(int(code), out, err)

    return run


PICTURE = """\
topology shops: tree, 4 nodes, 5 edges, marker airflow_cdc.shops
  berlin (db-berlin:3306)
  |<-> paris (db-paris:3306)
  `<-> rome (db-rome:3306)
       `--> oslo (db-oslo:3306)

  berlin -> paris: berlin_to_paris (berlin_paris.yaml), brings changes of berlin, rome
  berlin -> rome: berlin_to_rome (berlin_rome.yaml), brings changes of berlin, paris
  paris -> berlin: paris_to_berlin (paris_berlin.yaml), brings changes of paris
  rome -> berlin: rome_to_berlin (rome_berlin.yaml), brings changes of rome
  rome -> oslo: rome_to_oslo (rome_oslo.yaml), brings changes of berlin, paris, rome
"""


def test_a_tree_is_drawn_from_its_middle(topology: Topology, tmp_path: Path) -> None:
    write(tmp_path, *STAR)
    said = topology("show")
    assert said.code == 0
    picture, _, problems = said.out.partition("\n[warn] ")
    assert picture == PICTURE
    assert "what is written at oslo does not come back" in problems
    assert "planted" not in said.out


def test_what_is_right_is_said_and_what_is_wrong_is_refused_by_line(
    topology: Topology, tmp_path: Path
) -> None:
    write(tmp_path, *STAR[:2])
    said = topology("check")
    assert (said.code, said.out) == (
        0,
        "topology shops: tree, 2 nodes, 2 edges, marker airflow_cdc.shops: right, 0 warnings\n",
    )
    write(tmp_path, "paris rome", "rome berlin")
    said = topology("check")
    assert said.code == 2
    assert "[block] rome_berlin.yaml:line 10, topology.dst_node: there is another way" in said.out
    assert said.out.endswith("refused, 1 problem, 0 warnings\n")
    assert not said.err


def test_the_json_has_nodes_edges_and_problems(topology: Topology, tmp_path: Path) -> None:
    write(tmp_path, "berlin paris", "paris berlin", more="  marker: airflow_cdc.marks\n")
    form = topology("check", "--json").form
    assert not form["refused"]
    (one,) = form["topologies"]
    assert (one["name"], one["shape"], one["marker"]) == ("shops", "tree", "airflow_cdc.marks")
    assert one["nodes"][1] == {"name": "paris", "server": "db-paris:3306"}
    assert one["edges"][0] == {
        "from": "berlin",
        "to": "paris",
        "file": "berlin_paris.yaml",
        "pipeline": "berlin_to_paris",
        "brings": ["berlin"],
    }
    write(tmp_path, "paris berlin")
    form = topology("check", "--json").form
    assert form["refused"]
    (problem,) = form["problems"]
    assert (problem["file"], problem["line"], problem["key"]) == (
        "paris_berlin.yaml",
        7,
        "topology.marker",
    )


def test_a_loop_is_shown_with_what_is_wrong_and_without_what_it_brings(
    topology: Topology, tmp_path: Path
) -> None:
    write(tmp_path, "berlin paris", "paris rome", "rome berlin")
    said = topology("show")
    assert said.code == 0
    assert "brings" not in said.out
    assert "is a loop" in said.out


def test_a_file_that_is_refused_may_be_an_edge_so_the_check_is_refused(
    topology: Topology, tmp_path: Path
) -> None:
    write(tmp_path, "berlin paris")
    write(tmp_path, "paris berlin", more="sauce: 1\n")
    said = topology("check")
    assert said.code == 2
    assert "paris_berlin.yaml:line 1: the file is refused" in said.out
    assert "unknown key 'sauce'" in said.out
    assert "cannot tell, 1 file of the folder may be of it" in said.out.splitlines()[-1]


def test_a_folder_without_a_topology_is_refused(topology: Topology, tmp_path: Path) -> None:
    said = topology("check")
    assert (said.code, "no pipeline file" in said.err) == (2, True)
    (tmp_path / "one.yaml").write_text(EDGE.format(src="a", dst="b").partition("topology")[0])
    said = topology("check")
    assert (said.code, "no file of the folder has a topology" in said.err) == (2, True)


@pytest.mark.parametrize("shape", ["tree", "mesh"])
def test_the_picture_has_all_nodes_and_edges(
    topology: Topology, tmp_path: Path, shape: str
) -> None:
    write(tmp_path, *STAR, more=f"  shape: {shape}\n")
    picture = tmp_path / "shops.svg"
    assert topology("show", "--svg", str(picture)).code == 0
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    svg = "{http://www.w3.org/2000/svg}"
    texts = {each.text for each in root.iter(f"{svg}text")}
    assert {"berlin", "paris", "rome", "oslo", "db-oslo:3306"} <= texts
    lines = list(root.iter(f"{svg}line"))
    assert sorted(len({*each.attrib} & {"marker-start", "marker-end"}) for each in lines) == [
        1,
        2,
        2,
    ]
    _, _, width, height = (float(each) for each in root.attrib["viewBox"].split())
    for box in root.iter(f"{svg}rect"):
        if box.get("class") == "node":
            assert 0 <= float(box.attrib["x"]) <= width - float(box.attrib["width"])
            assert 0 <= float(box.attrib["y"]) <= height - float(box.attrib["height"])


def test_a_picture_that_cannot_be_written_is_refused(topology: Topology, tmp_path: Path) -> None:
    write(tmp_path, "berlin paris")
    said = topology("show", "--svg", str(tmp_path / "none" / "t.svg"))
    assert (said.code, "cannot be written" in said.err) == (2, True)
    said = topology("check", "--svg", "t.svg")
    assert (said.code, "check draws no picture" in said.err) == (2, True)
