"""The expressions of headers: exact, bounded, and nothing else of Python."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpbook.common import expressions

NAMES = {"N": 10, "K": 5, "H_out": 60, "W_out": 49, "TILE": 16}


def test_an_expression_is_a_whole_number_of_extents_and_constants():
    expected = {
        7: 7,
        "N": 10,
        "4 * ((16 + K - 1) ** 2 + K * K)": 4 * (400 + 25),
        "ceil(H_out / TILE) * ceil(W_out / TILE)": 16,
        "-(-W_out // 16)": 4,
        "W_out % 16 + 1": 2,
        "max(1, min(N, 3, K)) - +1": 2,
        "W_out / 7": 7,
        "next_power_of_2(N)": 16,
        "next_power_of_2(TILE) + next_power_of_2(1) + next_power_of_2(0)": 18,
    }
    assert {text: expressions.evaluate(text, NAMES) for text in expected} == expected


WHOLE = st.recursive(
    st.sampled_from([*NAMES, "1", "7", "12"]),
    lambda part: (
        st.builds("({} {} {})".format, part, st.sampled_from(["+", "-", "*", "//", "%"]), part)
        | st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), part, part)
        | st.builds("-{}".format, part)
    ),
    max_leaves=6,
)


@given(WHOLE)
def test_an_expression_has_the_value_that_python_gives_it(text):
    try:
        value = eval(text, {"max": max, "min": min}, NAMES)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="a division by 0"):
            expressions.evaluate(text, NAMES)
    else:
        assert expressions.evaluate(text, NAMES) == value


def test_ceil_is_exact_where_floating_point_is_not():
    large = 3 * (2**60 // 3) + 1
    assert expressions.evaluate("ceil(N / 3)", {"N": large}) == large // 3 + 1 != math.ceil(large / 3)


REFUSED = [
    ("H_ut", "'H_ut' is no extent or constant: did you mean 'H_out'?"),
    ("K / 2", "5/2 is no whole number; write ceil(a / b), or a // b to round down"),
    ("1.5 * K", "1.5 is no whole number"),
    ("True", "True is no whole number"),
    ("N // (K - 5)", "a division by 0"),
    ("K ** -1", "the exponent -1 is none of 0 to 63"),
    ("9 ** 9 ** 9", "the exponent 387420489 is none of 0 to 63"),
    ("2 ** 63", "2 ** 63 goes beyond 64 bits"),
    ("K +", "no expression: invalid syntax"),
    ("max(K", "one that holds a comma goes between quotes"),
    ("ceil(1, 2)", "ceil takes one value"),
    ("min()", "min takes two values or more"),
    ("__import__('os').system('true')", "is none of names, whole numbers"),
    ("K.real", "'K.real' is none of names, whole numbers"),
    ("[K][0]", "is none of names"),
    ("K if N else 1", "is none of names"),
    ("K < N", "is none of names"),
    ("(lambda: 1)()", "is none of names"),
    ("1 + " * 100 + "1", "401 characters exceed the limit 300"),
    ("(" * 299 + "1", "no expression: too many nested parentheses"),
]


def test_what_is_no_such_number_is_refused_with_the_reason():
    for text, words in REFUSED:
        with pytest.raises(ValueError) as refused:
            expressions.evaluate(text, NAMES)
        assert words in str(refused.value), text


def test_names_are_those_of_values_not_of_functions():
    assert expressions.used_names("ceil(H_out / TILE) + max(N, 1)") == {"H_out", "TILE", "N"}
    assert expressions.used_names(3) == set()
