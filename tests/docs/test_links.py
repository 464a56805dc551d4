"""Links and pictures of README and docs/ lead somewhere: to files, to headings, to functions of the sources."""

import ast
import re

import pytest
from blocks import FENCE, PAGES, ROOT

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def prose(page):
    """A page without its blocks and inline code."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]+`", "code", text)


def anchors(page):
    """The headings of a page as mkdocs names them."""
    found = re.findall(r"^#{1,6} +(.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    names = []
    for heading in found:
        plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        name = re.sub(r"[-\s]+", "-", plain)
        names.append(f"{name}_{names.count(name)}" if name in names else name)
    return names


def definitions(path):
    return [node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if hasattr(node, "name")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_headings_and_functions_that_exist(page):
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        name, _, place = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if place:
            assert place in (definitions(target) if target.suffix == ".py" else anchors(target)), link


def test_pages_of_the_site_link_to_no_place_outside_it_but_sources():
    for page in PAGES[1:]:
        for link in LINK.findall(prose(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            if not link.startswith("http"):
                assert target.is_relative_to(ROOT / "docs") or target.is_relative_to(ROOT / "src"), f"{page}: {link}"
                assert not target.is_dir() or link.startswith("#"), f"{page}: {link}"


def test_each_row_of_the_mathematics_names_functions_that_exist():
    rows = [line for line in (ROOT / "docs" / "maths.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    for row in rows:
        linked = re.findall(r"\[`([\w.]+)`\]\(\.\./(src/smoothlink(?:_paper)?/[\w/]+\.py)#(\w+)\)", row)
        assert linked, row
        for name, path, function in linked:
            module = path.removeprefix("src/smoothlink/").removeprefix("src/").removesuffix(".py").replace("/", ".")
            assert name == f"{module}.{function}"
            assert function in definitions(ROOT / path)


def test_every_page_is_in_the_navigation():
    told = re.findall(r"([\w./-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(told) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[1:])


def test_every_decision_is_listed():
    page = ROOT / "docs" / "decisions" / "index.md"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", page.read_text(encoding="utf-8"))
    assert listed == sorted(path.name for path in page.parent.glob("0*.md"))


def test_every_picture_is_shown_somewhere():
    shown = {(page.parent / link).resolve() for page in PAGES for link in LINK.findall(prose(page))}
    pictures = {path for path in (ROOT / "docs").rglob("*") if path.suffix in (".png", ".svg")}
    assert {path for path in pictures - shown if path.name != "favicon.svg"} == set()


def test_headings_have_the_names_that_mkdocs_gives_them(tmp_path):
    toc = pytest.importorskip("markdown.extensions.toc", reason="markdown is not installed")
    for heading in ("How good, and why", "nDCG@k: a `curve`", "yso-finna-en: titles of books", "A. b  c"):
        (tmp_path / "page.md").write_text(f"# {heading}\n")
        assert anchors(tmp_path / "page.md") == [toc.slugify(heading.replace("`", ""), "-")]
