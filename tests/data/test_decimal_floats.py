"""Numbers: what the fast parser reads is what float() reads; what is written is read back to the bit."""

import re

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smoothlink.data.decimal_floats import number, put_float
from smoothlink.data.files_on_disk import Text
from smoothlink.data.parse_rows import ColumnLimit, Grammar, parse
from smoothlink.data.read import Options

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


def fast(word):
    """Is it a number, its float32, where it ends."""
    data = np.frombuffer(word.encode(), np.uint8)
    return number(data, 0, len(data))


def exact(word):
    with np.errstate(over="ignore"):
        return np.float32(float(word))


def read_one(word):
    """The value as the whole reader gives it, slow path included."""
    text = Text("memory", np.frombuffer(f"0 0:{word}\n".encode(), np.uint8))
    return parse(text, 0, Grammar(), ColumnLimit("label"), ColumnLimit("feature"), Options()).values[0]


def written(value):
    out = np.zeros(16, np.uint8)
    return out[: put_float(out, 0, np.float32(value))].tobytes().decode()


def same_bits(a, b):
    return np.float32(a).tobytes() == np.float32(b).tobytes()


decimals = st.one_of(
    st.from_regex(NUMBER, fullmatch=True),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}.{}e{}".format, st.integers(-(10**25), 10**25), st.integers(0, 10**25), st.integers(-70, 45)),
    float32s.map(lambda x: f"{float(x):.60g}"),
)


@settings(max_examples=400, deadline=None)
@given(decimals)
@example("0.1")
@example("16777217")  # half-way between two float32 numbers
@example("16777217.0000000000000000000000000000000000000001")  # and a hair above
@example("1.00000005960464477539062500000000000000000000000000000001")
@example("3.4028235677973366e38")  # the first number that rounds to infinity
@example("3.4028235677973365e38")
@example("1.401298464324817e-45")
@example("7.006492321624085e-46")
@example("-0.0")
@example("1e-400")
@example("9007199254740993")
@example("0." + "0" * 400 + "1e400")
def test_the_value_is_that_of_float_rounded_to_float32(word):
    is_number, value, end = fast(word)
    assert is_number
    assert end == len(word)
    assert np.isnan(value) or same_bits(value, exact(word))
    if np.isfinite(exact(word)):
        assert same_bits(read_one(word), exact(word))


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789+-.eEnaif_x ", max_size=12))
def test_a_word_is_a_number_exactly_where_the_grammar_says_so(word):
    is_number, _, end = fast(word)
    assert (is_number and end == len(word)) == bool(NUMBER.fullmatch(word))


def test_long_numbers_rarely_need_the_slow_path():
    words = [repr(x) for x in np.random.default_rng(0).lognormal(size=2000)]
    assert max(map(len, words)) > 16
    assert not any(np.isnan(fast(word)[1]) for word in words)


@settings(max_examples=400, deadline=None)
@given(float32s)
@example(1.401298464324817e-45)
@example(3.4028234663852886e38)
@example(9.999999747378752e-05)
@example(999999984306749440.0)
@example(123456.0)
@example(-0.0)
@example(1e9)
@example(1e10)
@example(2.0**-30)
def test_a_written_float32_is_read_back_to_the_bit(value):
    assert same_bits(float(written(value)), value)
    assert same_bits(read_one(written(value)), value)


@settings(max_examples=200, deadline=None)
@given(float32s)
def test_no_more_digits_are_written_than_numpy_writes(value):
    def digits(text):
        return len(text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0"))

    assert digits(written(value)) <= digits(str(np.float32(value)))


def test_numbers_are_written_as_a_person_would():
    assert [written(x) for x in (0, 1, -2.5, 0.1, 0.001, 1e-5, 1e20, 100, 123456.7)] == [
        "0", "1", "-2.5", "0.1", "0.001", "1e-5", "1e20", "100", "123456.7",
    ]  # fmt: skip
