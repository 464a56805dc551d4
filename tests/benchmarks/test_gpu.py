"""The benchmarks of one GPU, made small and run on the processor: what they check, measure, store and say."""

import json

import gpu
import numpy as np
import pytest
from bench import gpu_checks, gpu_made, gpu_pack, gpu_parts
from bench.gpu_checks import Check, checks
from bench.gpu_made import Sizes, made
from bench.gpu_measure import Figure, product_rate, shortened, sine
from bench.gpu_page import NAMES, NOTHING, page, stored_cells, table
from commands import labelled
from generate.ages import without_age

from smoothlink.data.read import write
from smoothlink.errors import DataError
from smoothlink.machines.host_and_device import Host

SMALL = Sizes(300, 200, 40, words_drawn=12, labels_drawn=2.5)


def packed(folder, name, split):
    """A small file as `pack` writes it, of made rows."""
    arrays = {}
    for part, rows in zip(gpu_pack.PARTS, split, strict=True):
        arrays |= gpu_pack.stored(f"{part}_X", rows.X) | gpu_pack.stored(f"{part}_Y", rows.Y)
    np.savez_compressed(folder / f"{name}.npz", counted=np.array(False), **arrays)
    if name in gpu_pack.PAIRED:
        pairs = {}
        for part, rows in zip(gpu_pack.PARTS, split, strict=True):
            pairs |= gpu_pack.stored(part, rows.X)
        np.savez_compressed(folder / f"{name}-pairs.npz", **pairs)


@pytest.fixture
def data(tmp_path, seed):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in gpu_pack.SETS:
        packed(folder, name, made(SMALL._replace(labels_drawn=1.0) if name == "aloi" else SMALL, 120, seed))
    return folder


@pytest.fixture
def trusted(monkeypatch):
    """The checks are tested by themselves."""
    monkeypatch.setattr(gpu_checks, "checks", lambda device, seed: iter([Check("products", 1e-7, 1e-5)]))


def test_made_rows_have_unit_length_and_sorted_distinct_columns(seed):
    train, test = made(SMALL, 50, seed)
    assert train.X.shape == (300, 200)
    assert test.Y.shape == (50, 40)
    for A in (train.X, train.Y, test.X):
        assert A.has_canonical_format
        assert A.dtype == np.float32
        assert A.indices.dtype == np.int32
        assert (np.diff(A.indptr) > 0).all()
    assert np.allclose((train.X.multiply(train.X)).sum(axis=1), 1, atol=1e-5)
    assert (made(SMALL._replace(labels_drawn=1.0), 50, seed).train.Y.sum(axis=1) == 1).all()


def test_made_rows_do_not_depend_on_threads_but_on_the_seed(monkeypatch, seed):
    monkeypatch.setattr(gpu_made, "CHUNK", 64)
    monkeypatch.setattr(gpu_made, "THREADS", 1)
    one = made(SMALL, 50, seed)
    monkeypatch.setattr(gpu_made, "THREADS", 5)
    for a, b in zip(one, made(SMALL, 50, seed), strict=True):
        assert gpu_pack.same(a.X, b.X)
        assert gpu_pack.same(a.Y, b.Y)
    assert not gpu_pack.same(one.train.X, made(SMALL, 50, seed + 1).train.X)


def test_made_columns_follow_a_power_law(rng):
    drawn = np.bincount(gpu_made.ranks(rng, (200_000,), 1000), minlength=1000)
    assert len(drawn) == 1000
    assert drawn[0] / drawn[9] == pytest.approx(np.log(2) / np.log(11 / 10), rel=0.2)


@pytest.mark.slow
def test_a_packed_set_is_the_set(tmp_path, rng):
    for name, rows in (("train", labelled(rng, 40)), ("test", labelled(rng, 20))):
        (tmp_path / "bibtex").mkdir(exist_ok=True)
        write(rows, tmp_path / "bibtex" / f"{name}.txt")
    before = gpu_pack.rows_of(tmp_path, "bibtex")
    gpu_pack.pack(tmp_path, "bibtex", tmp_path / "small")
    for a, b in zip(before, gpu_pack.rows_of(tmp_path / "small", "bibtex"), strict=True):
        assert gpu_pack.same(a.X, b.X)
        assert gpu_pack.same(a.Y, b.Y)


def test_packed_titles_are_counts_and_give_the_same_tf_idf(tmp_path):
    folder = tmp_path / "yso-finna-en"
    folder.mkdir()
    (folder / "labels.tsv").write_text("0\tu:0\tart\n1\tu:1\tbirds\n")
    (folder / "train.tsv").write_text(
        "0\tof art and art\n1\tof birds\n0,1\tbirds in art\n1\tunheard\n1\tof birds\n1\tof birds\n"
    )
    (folder / "test.tsv").write_text("1\tbirds birds birds art\n0\tnothing known\n")
    gpu_pack.pack(tmp_path, "yso-finna-en", tmp_path / "small")
    before, after = (gpu_pack.rows_of(place, "yso-finna-en") for place in (tmp_path, tmp_path / "small"))
    for a, b in zip(before, after, strict=True):
        assert gpu_pack.same(a.X, b.X)
        assert gpu_pack.same(a.Y, b.Y)
    assert after.test.X[[1]].nnz == 0
    paired = [gpu_pack.paired(place, "yso-finna-en") for place in (tmp_path, tmp_path / "small")]
    for a, b in zip(*paired, strict=True):
        assert gpu_pack.same(a.X, b.X)
    assert paired[0].train.X.shape[1] == before.train.X.shape[1] + 1  # only "of birds" is in three rows
    assert np.allclose(paired[0].train.X[[1]].toarray()[0, -1] ** 2, 0.25 * pair_share(before), rtol=1e-5)


def pair_share(split):
    """Four times the squared weight of "of birds" in its row: words and pair have idf of 4, 3 and 3 of 6 rows."""
    idf = {rows: np.log(7 / (1 + rows)) + 1 for rows in (3, 4)}
    assert split.train.X.shape[0] == 6
    return idf[3] ** 2 / (idf[4] ** 2 + idf[4] ** 2 + 0.25 * idf[3] ** 2)


def test_an_absent_set_is_told_with_what_to_type(tmp_path, capsys, trusted):
    with pytest.raises(DataError, match=r"neither aloi\.npz nor a folder aloi"):
        gpu_pack.rows_of(tmp_path, "aloi")
    with pytest.raises(SystemExit) as end:
        gpu.main(["aloi", "--device", "cpu", "--data", str(tmp_path), "--results", str(tmp_path / "cells")])
    assert end.value.code == 1
    assert "gpu.py pack --to FOLDER" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.torch
def test_every_check_passes_on_the_processor(seed):
    found = list(checks("torch", seed))
    assert [str(check) for check in found if not check.passed] == []
    assert len({check.name for check in found}) == len(found) == 16


def test_the_checks_tell_shortened_numbers_from_float32(monkeypatch, seed):
    class Short(Host):
        """Arrays lose all but ten bits on the way, as in TF32."""

        def to_device(self, A):
            return (A.view(np.int32) & ~0x1FFF).view(np.float32) if getattr(A, "dtype", None) == np.float32 else A

    monkeypatch.setattr(gpu_checks, "find_machine", lambda device: Short())
    found = checks("cpu", seed)
    assert [(check.name, check.passed) for check in (next(found), next(found), next(found))] == [
        ("X'YQ", False),
        ("Y'XZ", False),
        ("X'XZ", False),
    ]


def test_a_failed_check_ends_the_run_before_anything_is_measured(monkeypatch, tmp_path, capsys):
    bad = [Check("products", float("nan"), 1e-5), Check("Gram", 1e-9, 1e-5), Check("solve", 0.1, 1e-5)]
    monkeypatch.setattr(gpu_checks, "checks", lambda device, seed: iter(bad))
    monkeypatch.setattr(gpu_parts, "PARTS", {})
    with pytest.raises(SystemExit) as end:
        gpu.main(["lshtc", "--device", "cpu", "--results", str(tmp_path), "--quiet"])
    assert "FAIL  products" in str(end.value.code)
    assert "FAIL  solve: relative error 1.0e-01, at most 1e-05" in str(end.value.code)
    assert "Gram" not in str(end.value.code)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cpu", pytest.param("torch", marks=pytest.mark.torch)])
@pytest.mark.slow
def test_small_parts_store_cells_without_places_and_print_their_tables_last(device, tmp_path, data, capsys, trusted):
    parts = [part for part in NAMES if part != "yso" or device == "torch"]  # its fine-tuning needs torch
    words = ["--device", device, "--scale", "0.001", "--passes", "2", "--data", str(data), "--results", str(tmp_path)]
    gpu.main([*parts, *words])
    cells = stored_cells(tmp_path)
    assert list(cells) == parts
    assert capsys.readouterr().out.endswith("\n\n".join(map(table, cells.values())) + "\n")
    for name, cell in cells.items():
        assert str(tmp_path) not in json.dumps(cell)
        assert cell["trial"]
        assert cell["command"] == f"python benchmarks/gpu.py {name} --device {device} --seed 0 --scale 0.001 --passes 2"
        assert {"smoothlink", "numpy", "source"} <= set(cell["versions"])
        assert all(np.isfinite(figure["value"]) for figure in cell["figures"])
        assert any(Figure(**figure).bar for figure in cell["figures"])
    lshtc = {figure["what"]: figure["value"] for figure in cells["lshtc"]["figures"]}
    assert lshtc["fit, with 20 passes"] > lshtc["fit, end to end"] > lshtc["a pass, median"] > 0
    assert 0 < lshtc["held-out rows: P@1"] <= 100
    apart = [Figure(**figure) for figure in cells["agree"]["figures"] if "angle" in figure["what"]]
    assert len(apart) == 4
    assert all(figure.met for figure in apart)
    assert "This was a trial" in page(cells)


def test_sizes_shrink_with_the_scale_and_stay_possible():
    options = gpu_parts.RunOptions(scale=0.01, passes=2)
    found = options.settings(gpu_parts.LSHTC)
    shrunk = {"rank": 80, "kernel.features": 400, "loss.batch_rows": 655, "loss.passes": 2}
    assert {name: found[name] for name in shrunk} == shrunk
    assert options.settings(gpu_parts.QUICK) == gpu_parts.QUICK
    assert options.settings(gpu_parts.SAMPLED) == gpu_parts.SAMPLED | {"training.passes": 2}
    assert gpu_parts.RunOptions().settings(gpu_parts.LSHTC) == gpu_parts.LSHTC
    assert gpu_parts.LSHTC_SIZES.scaled(1) == gpu_parts.LSHTC_SIZES


@pytest.mark.parametrize(
    ("bounds", "met"), [({}, None), ({"at_most": 2.0}, True), ({"at_most": 1.9}, False), ({"at_least": 2.0}, True)]
)
def test_a_figure_meets_its_bar_or_misses_it(bounds, met):
    figure = Figure("a pass", 2.0, "s", **bounds)
    assert figure.met is met
    assert figure.bar.endswith({None: "", True: ": met", False: ": missed"}[met])
    assert figure.shown == "2.00 s"


def test_numbers_are_shown_with_about_four_digits():
    shown = [shortened(value) for value in (123456.0, 1234.5, 12.345, 0.12345, 1.2e-5, 0.0)]
    assert shown == ["123,456", "1,234.5", "12.35", "0.123", "1.2e-05", "0"]


def test_the_sine_is_of_the_largest_angle_between_spans(rng):
    U = rng.standard_normal((30, 3))
    assert sine(U, U @ rng.standard_normal((3, 3))) < 1e-12
    A, B = np.eye(4)[:, :2], np.eye(4)[:, :2].copy()
    B[:, 1] = [0, np.cos(0.3), np.sin(0.3), 0]
    assert sine(A, B) == pytest.approx(np.sin(0.3))
    assert sine(A, np.eye(4)[:, :1]) == 1.0


def test_products_have_a_rate():
    assert product_rate("cpu", 64) > 0


def test_a_trial_replaces_no_real_figures(capsys):
    for words in (["lshtc", "--scale", "0.1"], ["odp", "--passes", "1"], ["aloi", "--device", "cpu"]):
        with pytest.raises(SystemExit):
            gpu.main(words)
        assert "pass --results FOLDER too" in capsys.readouterr().err


def test_parts_that_are_unknown_or_absent_are_told(capsys):
    for words, said in ((["moon"], "moon is no part"), ([], "nothing is no part"), (["pack"], "pack goes alone")):
        with pytest.raises(SystemExit):
            gpu.main(words)
        assert said in capsys.readouterr().err


def test_the_page_has_a_row_for_every_figure_and_says_with_what():
    figures = [Figure("fit", 412.0, "s", at_most=480)._asdict(), Figure("P@1", 31.5, "%")._asdict()]
    data = {"rows": 1000, "test_rows": 10, "features": 20, "labels": 30, "features_a_row": 4.25, "labels_a_row": 1.0}
    about = {"date": "2026-01-02", "device": "NVIDIA H200", "cores": 16, "seed": 0, "scale": 1.0, "trial": False}
    cell = about | {"part": "aloi", "command": "python benchmarks/gpu.py aloi", "seconds": 431.0, "data": data}
    cell |= {"versions": {"torch": "2.11.0", "CUDA": "13.0"}, "settings": {"fit": {"n_features": 16000, "ridge": 1e-5}}}
    cell |= {"figures": figures, "checks": [Check("Gram", 1e-7, 1e-5)._asdict(), Check("V", 1e-3, 2e-2)._asdict()]}
    text = page({"aloi": cell})
    assert "| fit | 412.0 s | at most 480: met |" in text
    assert "| P@1 | 31.50 % |  |" in text
    assert "1,000 training rows, 10 test rows, 20 features and 30 labels, 4.25 and 1 of them per row." in text
    assert "2 checks passed; nearest to its limit: V, 1.0e-03 of 0.02." in text
    assert "- fit: n features 16000, ridge 1.0e-05." in text
    assert "torch 2.11.0, CUDA 13.0." in text
    assert "trial" not in text
    assert table(cell).splitlines()[1] == "fit  412.0 s  at most 480: met"
    assert NOTHING in page({})


def test_the_page_of_this_project_is_what_its_cells_say():
    remedy = "write it again: python benchmarks/gpu.py --page-only, python docs/generate"
    assert without_age(gpu.PAGE.read_text()) == page(stored_cells(gpu.CELLS)), remedy
