"""YAML with the line of every key and item, so that an error can name the line.

PyYAML's node graph has the marks; the plain values it constructs do not. So the graph is walked
once and gives both. Duplicate keys, which YAML loaders silently resolve to the last one, are an
error. Anchors work, but not merge keys, nor graphs of anchors that unfold beyond reason.
Timestamps stay text: the model decides types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from airflow_cdc_provider.pipeline.file.problems import Path, Problem

_DEEPEST = 16
_MOST_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader that leaves timestamps as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class YamlDocument:
    """A YAML document's plain value, and the line (from 1) of each path in it."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path) -> int:
        """Return the line of a path, or of the nearest parent that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> YamlDocument:
    """Read one YAML document; its syntax errors are among its problems."""
    document = YamlDocument()
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is not None:
            document.value = _walk(root, (), document, loader.construct_object)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        what = f"not YAML: {error.problem or error.context}"
        document.problems.append(Problem(line, (), what, "correct the indentation or quoting"))
    finally:
        loader.dispose()
    return document


def _walk(
    node: yaml.Node, path: Path, document: YamlDocument, scalar: Callable[[yaml.Node], Any]
) -> Any:
    """Return a YAML node as a plain value, and note the line of each path."""
    document.lines.setdefault(path, node.start_mark.line + 1)
    if len(path) > _DEEPEST or len(document.lines) > _MOST_VALUES:
        raise yaml.MarkedYAMLError(problem="too deep or too large", problem_mark=node.start_mark)
    if isinstance(node, yaml.SequenceNode):
        return [
            _walk(item, (*path, number), document, scalar) for number, item in enumerate(node.value)
        ]
    if not isinstance(node, yaml.MappingNode):
        return scalar(node)
    value: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(scalar(key_node))
        line = key_node.start_mark.line + 1
        if key in value:
            what = f"the key {key!r} is there twice, first on line {document.lines[(*path, key)]}"
            document.problems.append(Problem(line, (*path, key), what, "keep one of them"))
        document.lines[(*path, key)] = line
        value[key] = _walk(value_node, (*path, key), document, scalar)
    return value
