"""Pages that are written from the program say what the program says; messages on the pages are those of the sources."""

import ast
import functools
import re

import pytest
from blocks import PAGES, ROOT, blocks
from generate.api_page import api_page
from generate.command_page import command_page
from generate.figures import ABOUT, BEGIN, END, measured, row, with_table
from generate.parameters_page import parameters_page, with_former

from smoothlink.parameters import FORMER
from smoothlink_paper.reproduce_odp import LARGE, LINK, NEAREST

ANEW = "python docs/generate"


@pytest.mark.parametrize(
    ("name", "page"), [("commands.md", command_page), ("api.md", api_page), ("parameters.md", parameters_page)]
)
def test_a_page_is_what_the_program_generates(name, page):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"type: {ANEW}"


def test_the_table_of_former_parameters_is_that_of_the_program():
    page = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    assert with_former(page) == page, f"type: {ANEW}"
    assert page.count("\n| `") >= len(FORMER)


def test_commands_and_options_are_all_on_the_page():
    import typer

    from smoothlink.cli.app import app

    text = command_page()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"\n## {name}\n" in text
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("-") or f"`{option}`" in text, option


def test_the_table_in_readme_is_that_of_the_recorded_cells():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert BEGIN in readme
    assert END in readme
    assert with_table(readme, ROOT) == readme, f"type: {ANEW}"


def test_figures_in_the_readme_table_are_on_the_page_of_the_benchmarks():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rounded = {f"{float(figure):.1f}" for figure in re.findall(r"\d+\.\d+", page)}
    table = (ROOT / "README.md").read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    pairs = re.findall(r"(\d+\.\d) / (\d+\.\d)", table)
    assert len(pairs) > 15
    assert {figure for pair in pairs for figure in pair} <= rounded


@pytest.mark.parametrize("name", ABOUT)
def test_the_highest_precision_of_a_set_is_in_bold_whoever_reached_it(name):
    cells = measured(ROOT / "results" / "peers" / name)
    bold = re.findall(r"\*\*(\d+\.\d) / ", row(name, cells))
    highest = max(cell["metrics"]["p@1"]["value"] for cell in cells.values())
    assert set(bold) == {f"{100 * highest:.1f}"}


def test_readme_names_the_learner_of_each_set():
    table = (ROOT / "README.md").read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    lines = [[word.strip() for word in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    defaults, others = ([cells for cells in lines if bool(cells[1]) == own] for own in (True, False))
    assert [cells[0].partition(":")[0] for cells in defaults] == list(ABOUT)
    assert {cells[3] for cells in others} == {"Algorithm 3"}
    assert [cells[0] for cells in others] == [c[0].partition(":")[0] for c in defaults if c[3] != "Algorithm 3"]
    for cells in defaults:
        many = int(cells[2].replace(",", "")) >= 2000
        assert cells[3] == ("joint, sampled negatives" if many else "Algorithm 3")


def test_figures_beside_the_readme_table_are_on_the_pages_that_it_links():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    aloi = (ROOT / "docs" / "results" / "odp.md").read_text(encoding="utf-8").split("## aloi")[1].split("## ")[0]
    found = re.search(r"has an error of ([\d.]+) % and the default ([\d.]+) %; 8,000 .*? have ([\d.]+) %", readme)
    nearest, default, large = (re.search(rf"\| {method} \| ([\d.]+) ", aloi)[1] for method in (NEAREST, LINK, LARGE))
    assert found.groups() == (nearest, default, large)
    pages = {"25.2": "results/lshtc.md", "33.4": "benchmarks-gpu.md"}
    for figure, page in pages.items():
        assert f"[{figure}](docs/{page}" in readme
        on_page = re.findall(r"\d+\.\d\d", (ROOT / "docs" / page).read_text(encoding="utf-8"))
        assert figure in {f"{float(exact):.1f}" for exact in on_page}


def test_the_figure_of_the_gpu_in_readme_is_on_its_page():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    page = (ROOT / "docs" / "benchmarks-gpu.md").read_text(encoding="utf-8")
    seconds = re.search(r"2\.4 million rows and 325,000 labels take (\d+) s on one H200", readme)
    measured = re.search(r"\| fit, end to end \| ([\d.]+) s \|", page.split("## ")[1])
    assert round(float(measured[1])) == int(seconds[1])
    assert "2,400,000 training rows" in page
    assert "made data of LSHTC's shape" in readme
    assert "Made data" in page.split("## ")[1]


@functools.cache
def templates():
    """Lines of the texts in the sources, as patterns: what is filled in may be anything."""
    found = set()
    for path in sorted((ROOT / "src" / "smoothlink").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                found |= set(lines_of(node))
    return [re.compile(pattern) for pattern in found]


def lines_of(node):
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in parts)
    for line in text.split("\n"):
        told = len(line.replace("\0", "").strip())
        if told >= 12:
            yield re.escape(line).replace("\0", ".+?") + (
                ".*" if told >= 20 else ""
            )  # it may be the first of two parts


def errors():
    """The messages on the pages that begin with `error:`, line by line."""
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "text" and block.text.startswith("error: "):
                yield from ((block.where, line) for line in block.text.splitlines() if line)


def test_every_error_on_the_pages_stands_in_the_sources():
    said = list(errors())
    assert len(said) > 20
    for where, line in said:
        message = line.removeprefix("error: ")
        assert any(pattern.fullmatch(message) for pattern in templates()), f"{where}: {message}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_at_its_end_how_it_was_written(page):
    paragraphs = [part for part in page.read_text(encoding="utf-8").split("\n\n") if part.strip()]
    assert not [part for part in paragraphs[:3] if re.match(r"(Written|Generated) by `", part)]
