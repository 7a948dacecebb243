import faulthandler
import os
import signal
import time

import pytest

from warpbook.errors import UserError
from warpbook.supervision import Failed, supervised


def test_items_arrive_as_they_are_made():
    def produce():
        yield from ("first", ["second"], {"third": 3})

    assert list(supervised(produce, 10)) == ["first", ["second"], {"third": 3}]


def test_a_hang_ends_in_a_failure_that_keeps_what_came_before():
    def produce():
        yield 1
        time.sleep(60)

    got = []
    began = time.monotonic()
    with pytest.raises(Failed, match=r"still running after 0\.3 s") as raised:
        got.extend(supervised(produce, 0.3))
    assert raised.value.status == "timed_out"
    assert time.monotonic() - began < 10


def test_time_is_counted_anew_for_each_item():
    def produce():
        for number in range(4):
            time.sleep(0.2)
            yield number

    assert list(supervised(produce, 0.5)) == [0, 1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_crash_is_named_by_its_signal(number):
    def produce():
        yield "kept"
        faulthandler.disable()
        os.kill(os.getpid(), number)
        yield "never"

    got = []
    with pytest.raises(Failed, match=number.name) as raised:
        for item in supervised(produce, 10):
            got.append(item)  # noqa: PERF402
    assert got == ["kept"]
    assert raised.value.status == "launch_failed"


def test_an_exit_without_a_word_is_a_failure():
    def produce():
        yield 1
        os._exit(3)

    with pytest.raises(Failed, match="exit status 3"):
        list(supervised(produce, 10))


def test_a_user_error_comes_through_as_it_was():
    def produce():
        yield 1
        raise UserError("value, limit, remedy")

    with pytest.raises(UserError, match="value, limit, remedy"):
        list(supervised(produce, 10))


def test_another_error_comes_through_with_its_kind(capfd):
    def produce():
        yield 1
        raise KeyError("lost")

    with pytest.raises(RuntimeError, match="KeyError: 'lost'"):
        list(supervised(produce, 10))
    assert "Traceback" in capfd.readouterr().err
