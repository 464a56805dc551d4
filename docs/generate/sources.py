"""A hook of mkdocs: links to `../src/...py#name` lead to pages that show these files, one heading a definition.

In a checkout the same links open the files themselves.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?:\.\./)+(src/smoothlink(?:_paper)?/[\w/]+\.py)(?:#(\w+))?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each source that some page links to."""
    from mkdocs.structure.files import File

    linked = {found[1] for file in files.documentation_pages() for found in LINK.finditer(file.content_string)}
    for source in sorted(linked):
        files.append(File.generated(config, page_of(source), content=source_page(source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns the links to sources into links to their pages."""
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(lambda found: f"]({up}{page_of(found[1])}{'#' + found[2] if found[2] else ''})", markdown)


def page_of(source: str) -> str:
    """src/smoothlink/steps/embed.py -> source/steps/embed.md"""
    return "source/" + source.removeprefix("src/smoothlink/").removeprefix("src/").removesuffix(".py") + ".md"


def source_page(source: str) -> str:
    """The file as a page: a heading and a block of code for each top-level definition."""
    text = (ROOT / source).read_text(encoding="utf-8")
    lines = text.splitlines()
    nodes = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    starts = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in nodes]
    parts = [f"# {source.removeprefix('src/')}\n", block(lines, 1, (starts or [len(lines) + 1])[0])]
    for node, start, end in zip(nodes, starts, [*starts[1:], len(lines) + 1], strict=True):
        parts += [f"## {node.name} {{#{node.name}}}\n", block(lines, start, end)]
    return "\n".join(parts)


def block(lines: list[str], start: int, end: int) -> str:
    """Lines of a file, numbered as in it."""
    code = "\n".join(lines[start - 1 : end - 1]).rstrip()
    return f'``` {{ .python linenums="{start}" }}\n{code}\n```\n' if code else ""
