"""Windows of time, by hand."""

from __future__ import annotations

from pisces.windows import Windows


def test_the_first_begins_at_once_and_each_where_one_ends() -> None:
    windows = Windows(2.5)
    instants = []
    for _ in range(3):
        instants.append(windows.next_at)
        windows.begin(windows.next_at)
    assert instants == [0.0, 2.5, 5.0]


def test_windows_that_were_slept_through_are_left_out() -> None:
    windows = Windows(5.0, 1)
    windows.begin(12.0)  # that of 5 begins late, and that of 10 never
    assert windows.next_at == 15.0
    windows.begin(15.0)
    assert windows.next_at == 20.0


def test_windows_in_which_nothing_is_asked_are_skipped() -> None:
    windows = Windows(5.0, 1)
    windows.skip(15.0)
    assert windows.next_at == 15.0  # not before
    windows.skip(15.1)
    assert windows.next_at == 20.0
    windows.skip(3.0)
    assert windows.next_at == 20.0  # never back


def test_without_a_tick_they_are_only_counted() -> None:
    windows = Windows(0.0)
    windows.begin(7.0)
    assert (windows.num, windows.next_at) == (1, 0.0)
