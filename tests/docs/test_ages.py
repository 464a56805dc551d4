"""A page of figures names those that were measured before the code last changed."""

import json

import pytest
from blocks import ROOT
from generate.ages import BEGIN, END, PAGES, with_age, without_age

from smoothlink_paper.record import circumstances, source


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_its_older_figures(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert BEGIN in text
    assert with_age(text, name, ROOT) == text, "type: python docs/generate"


def stored(root, place, **record):
    path = root / "results" / f"{place}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def noted(root, page, now="new", **given):
    text = with_age("# A page\n\nIts figures.\n", page, root, now, **given)
    assert without_age(text) == "# A page\n\nIts figures.\n"
    assert with_age(text, page, root, now, **given) == text
    return text.split(BEGIN)[1].split(END)[0].strip()


def test_only_figures_of_another_source_are_named_with_their_date(tmp_path):
    stored(tmp_path, "peers/bibtex/smoothlink", date="2026-01-01", versions={"smoothlink": "1", "source": "old"})
    stored(tmp_path, "peers/yeast/smoothlink", date="2026-01-02", versions={"smoothlink": "1", "source": "new"})
    stored(tmp_path, "peers/yeast/omikuji", date="2026-01-01", method="omikuji", versions={"omikuji": "1"})
    note = noted(tmp_path, "README.md")
    assert note.endswith("- 2026-01-01: bibtex: smoothlink")
    assert noted(tmp_path, "README.md", now="newer").startswith("All figures of smoothlink here are older")


def test_a_page_whose_figures_are_all_of_this_source_says_nothing(tmp_path):
    stored(tmp_path, "mulan/2026-01-02", **circumstances("mulan", 0, 1.0))
    stored(tmp_path, "mulan/2026-01-01", date="2026-01-01", versions={"smoothlink": "1"})  # replaced by the newer one
    assert noted(tmp_path, "docs/results/mulan.md", now=source()) == ""


def test_figures_measured_again_within_an_older_record_are_not_named(tmp_path):
    again = {"value": 0.1, "date": "2026-01-02", "source": "new"}
    stored(tmp_path, "odp/2026-01-01", date="2026-01-01", sets={"aloi": {"methods": {"ours": again, "other": {}}}})
    assert noted(tmp_path, "docs/results/odp.md").endswith("- 2026-01-01: odp")


def test_figures_before_changes_that_none_of_them_shows_are_not_named(tmp_path):
    known = {"without_effect": {"old": ("between", "The code was moved."), "between": ("new", "And back.")}}
    stored(tmp_path, "peers/yeast/smoothlink", date="2026-01-02", versions={"smoothlink": "1", "source": "old"})
    assert noted(tmp_path, "README.md", **known) == ""
    assert noted(tmp_path, "README.md", now="newer", **known).startswith("All figures of smoothlink here are older")
