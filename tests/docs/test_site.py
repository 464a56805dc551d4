"""The site is built without a warning, from its pages and the sources they link to, and asks no other server."""

import os
import re
import subprocess
import sys

import pytest
from blocks import ROOT
from generate.sources import page_of, source_page

LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"([^\"]+)\"|<link[^>]+href=\"([^\"]+)\"|url\(([^)]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        for found in LOADED.findall(page.read_text(encoding="utf-8")):
            assert not any(part.strip("'\"").startswith(("http:", "https:", "//")) for part in found), (
                f"{page}: {found}"
            )


def test_functions_of_the_mathematics_are_headings_of_source_pages(site):
    for link in re.findall(r"href=\"(source/[\w/]+\.html)#(\w+)\"", (site / "maths.html").read_text(encoding="utf-8")):
        assert f'id="{link[1]}"' in (site / link[0]).read_text(encoding="utf-8")


def test_a_page_of_a_source_has_all_its_lines():
    source = "src/smoothlink/steps/scale.py"
    code = re.findall(r"^``` [^\n]*\n(.*?)^```$", source_page(source), re.MULTILINE | re.DOTALL)
    text = (ROOT / source).read_text(encoding="utf-8")
    assert "".join(code).split() == text.split()
    assert page_of(source) == "source/steps/scale.md"
