"""`smoothlink explain`: the explanation of a row, as tables and as one JSON object."""

import pytest
from commands import prepared, run, succeed

import smoothlink


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("explain"), pytestconfig.getoption("--seed"))


def test_json_is_what_the_library_says(files):
    found = succeed("explain", files.model, files.test, "--row", 3, "-k", 2, "--json", "-q").json["labels"]
    expected = smoothlink.explain(smoothlink.load(files.model), files.tested.X[[3]], k=2)
    assert [one["name"] for one in found] == [one.name for one in expected]
    for one, same in zip(found, expected, strict=True):
        assert one["score"] == pytest.approx(same.score)
        assert [reason["name"] for reason in one["reasons"]] == [reason.name for reason in same.reasons]
        assert one["base"] + one["rest"] + sum(r["added"] for r in one["reasons"]) == pytest.approx(one["score"])


def test_the_table_adds_up_to_the_score(files):
    ran = succeed("explain", files.model, files.test, "--row", 3, "--labels", "label2,0", "--top", 2)
    one = smoothlink.explain(smoothlink.load(files.model), files.tested.X[[3]], labels=["label2"], top=2)[0]
    assert f"label2: probability {one.probability:.4f}" in ran.out
    assert "label0: probability" in ran.out
    for reason in one.reasons:
        assert f"{reason.added:+.4f}" in ran.out
    assert f"{one.score:+.4f}" in ran.out
    assert "similar labels: " in ran.out


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ([], 2, "FILE --row N"),
        (["--row", 0], 2, "FILE --row N"),
        (["--text", "a", "--row", 0], 2, "exclude each other"),
        (["--text", "a"], 2, "was made from rows of features"),
        (["TEST", "--row", 30], 1, "30 rows, 0 to 29; there is no row 30"),
        (["TEST", "--row", 0, "--labels", "unheard"], 2, "knows no label 'unheard'"),
        (["TEST", "--row", 0, "--format", "odd"], 2, "'odd' is none of"),
    ],
)
def test_wrong_usage_is_said(files, given, code, said):
    ran = run("explain", files.model, *(files.test if word == "TEST" else word for word in given))
    assert ran.code == code
    assert said in " ".join(ran.err.replace("│", " ").split())
