"""Near-duplicates against the exact share of three-word runs, counted by brute force."""

import itertools
import time

import numpy as np
import pytest

from smoothlink.text.near_duplicates import find_near_duplicates, signatures


def runs(text):
    words = text.lower().split()
    return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}


def jaccard(one, other):
    a, b = runs(one), runs(other)
    return len(a & b) / len(a | b)


def changed(rng, text, count):
    """The text with some of its words replaced."""
    words = text.split()
    for at in rng.choice(len(words), count, replace=False):
        words[at] = f"new{rng.integers(10**6)}"
    return " ".join(words)


@pytest.fixture
def texts(rng):
    """Sixty texts of forty words, and copies of them with zero to nine words replaced."""
    made = [" ".join(f"w{v}" for v in rng.integers(0, 500, 40)) for _ in range(60)]
    return [*made, *(changed(rng, text, i % 10) for i, text in enumerate(made))]


def test_shares_of_signatures_are_near_the_exact_ones(texts):
    S = signatures(texts)
    gaps = [float((S[i] == S[i + 60]).mean()) - jaccard(texts[i], texts[i + 60]) for i in range(60)]
    assert np.abs(gaps).max() < 0.2
    assert abs(np.mean(gaps)) < 0.02


def test_what_is_clearly_alike_is_found_and_nothing_that_is_clearly_not(texts):
    found = find_near_duplicates(texts)
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    for i, j in itertools.combinations(range(120), 2):
        exact = jaccard(texts[i], texts[j])
        assert exact < 0.93 or (i, j) in pairs
        assert exact > 0.6 or (i, j) not in pairs
        assert ((i, j) not in pairs) or found.group[i] == found.group[j]


def test_a_group_is_found_whatever_its_size():
    texts = [f"the very same words in a row again and again but for the end {i % 3}" for i in range(500)]
    assert len(set(find_near_duplicates(texts).group.tolist())) == 1


def test_texts_without_words_resemble_none_and_short_ones_only_themselves():
    found = find_near_duplicates(["", "...", "?!", "one", "two", "One!", "one two"])
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [(3, 5)]
    assert find_near_duplicates([]).group.tolist() == []


def test_characters_of_chinese_are_words():
    text = "机器学习是人工智能的一个分支它研究如何让计算机从数据中学习规律并作出预测"
    found = find_near_duplicates(
        [text, text[:-1] + "断", "天气很好我们去公园散步然后回家吃饭看书睡觉做梦起床上班工作学习"]
    )
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [(0, 1)]


def test_time_grows_with_the_text_even_where_all_are_candidates(rng):
    """Every text begins with the same half: with pairs of all texts this would take minutes."""
    head = " ".join(f"h{i}" for i in range(60))
    texts = [f"{head} {' '.join(f'w{v}' for v in rng.integers(0, 10**6, 40))}" for _ in range(8000)]
    find_near_duplicates(texts[:10])  # compiles
    began = time.perf_counter()
    find_near_duplicates(texts)
    assert time.perf_counter() - began < 30
