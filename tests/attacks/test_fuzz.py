"""A short form of `make fuzz`: a few mutated inputs of every reader, of model files and of routes of the server."""

import random

import fuzz
import pytest
from hostile import limited

SOME = 12  # inputs of each target


@pytest.fixture(scope="module", params=fuzz.GROUPS, ids=lambda group: group.__name__)
def group(request):
    for library in ("pyarrow", "openpyxl", "rdflib", "fastapi", "httpx"):
        pytest.importorskip(library)
    return list(request.param())


def test_mutated_inputs_are_read_or_refused_and_sealed_ones_never_read_as_something_else(group, seed, tmp_path):
    for name in group:
        fuzz.sound_result(name)
        for case in range(SOME):
            folder = tmp_path / f"{name.replace('/', '_')[:20]} {case}"
            folder.mkdir()
            with limited(size=1 << 40):
                assert fuzz.run_case(name, seed, case, folder) in ("read", "refused")


def test_a_case_of_a_seed_is_always_the_same_input(tmp_path):
    target = fuzz.targets()["xmc"]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        fuzz.make_input(target, tmp_path / name, random.Random("1 2 xmc"))
    assert (tmp_path / "a" / "a.txt").read_bytes() == (tmp_path / "b" / "a.txt").read_bytes()
    assert len({fuzz.mutated(target.sound["a.txt"], random.Random(i)) for i in range(50)}) > 40


def test_a_change_that_is_not_noticed_is_found(tmp_path, monkeypatch):
    sound = fuzz.Target({"a": b"abcdefgh"}, lambda folder: (folder / "a").read_bytes(), sealed=True)
    monkeypatch.setattr(fuzz, "targets", lambda: {"sound": sound})
    with pytest.raises(AssertionError, match="the change was not noticed"):
        any(fuzz.run_case("sound", 0, case, tmp_path) == "" for case in range(20))
