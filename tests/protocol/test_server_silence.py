"""When a server that lives is taken for hung."""

from __future__ import annotations

from clonos.protocol.roles.server_silence import PINGS, ServerSilence

DEADLINE = 8.0


def test_so_many_pings_in_a_row_without_an_answer_are_the_deadline() -> None:
    silence = ServerSilence(DEADLINE, 100.0)
    for number in range(1, PINGS + 1):
        assert not silence.is_hung
        silence.unanswered(100.0 + number * silence.step)
    assert silence.is_hung and PINGS * silence.step == DEADLINE


def test_an_answer_begins_the_deadline_anew() -> None:
    silence = ServerSilence(DEADLINE, 0.0)
    for number in range(1, PINGS):
        silence.unanswered(number * silence.step)
    silence.answered(7.0)
    for number in range(1, PINGS):
        silence.unanswered(7.0 + number * silence.step)
    assert not silence.is_hung


def test_a_pause_of_the_driver_is_not_silence_of_the_server() -> None:
    silence = ServerSilence(DEADLINE, 0.0)
    silence.unanswered(3600.0)
    assert not silence.is_hung


def test_a_ping_that_was_waited_for_too_briefly_does_not_count_in_full() -> None:
    silence = ServerSilence(DEADLINE, 0.0)
    for number in range(1, PINGS + 1):
        silence.unanswered(number * silence.step / 2)
    assert not silence.is_hung
