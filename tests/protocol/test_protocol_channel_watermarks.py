"""The watermark that follows from what senders say: the minimum over channels that are not idle, and over inputs."""

from __future__ import annotations

from clonos.protocol.engine.channel_watermarks import IDLE_AFTER, MOMENT, ChannelWatermarks, EventInput
from clonos.protocol.ids import NodeId, channel_id

LEFT, RIGHT = NodeId(1), NodeId(2)
ONE, TWO, THREE = (channel_id(LEFT, at) for at in range(3))
OTHER = channel_id(RIGHT, 0)


def watermarks(*inputs: EventInput) -> ChannelWatermarks:
    made = ChannelWatermarks(inputs)
    made.begin_epoch(0, realtime=False)
    return made


def test_in_micro_batch_the_slowest_channel_of_the_batch_counts() -> None:
    known = watermarks(EventInput(LEFT))
    assert known.reached(0, realtime=False) is None
    known.claim({ONE: 50}, 1)
    known.claim({TWO: 30, ONE: 40}, 2)  # a claim never goes back
    assert known.reached(3, realtime=False) == 30
    known.begin_epoch(4, realtime=False)
    known.claim({ONE: 90}, 5)
    assert known.reached(6, realtime=False) == 90, "a channel that is silent in the batch is idle"
    known.begin_epoch(7, realtime=False)
    known.claim({TWO: 35, ONE: 95}, 8)
    assert known.reached(9, realtime=False) == 90, "it never goes back"


def test_an_input_holds_the_others_back_until_it_is_said_to_be_idle() -> None:
    known = watermarks(EventInput(LEFT), EventInput(RIGHT))
    known.claim({ONE: 50}, 1)
    assert known.reached(10 * IDLE_AFTER, realtime=False) is None
    known.claim({OTHER: 20}, 1)
    known.begin_epoch(2, realtime=False)
    known.claim({ONE: 70}, 2)
    assert known.reached(10 * IDLE_AFTER, realtime=False) == 20
    tolerant = watermarks(EventInput(LEFT), EventInput(RIGHT, idle_after=100))
    tolerant.claim({ONE: 50}, 1)
    assert tolerant.reached(99, realtime=False) is None
    assert tolerant.reached(100, realtime=False) == 50, "one that has never spoken is idle, too"
    tolerant.claim({OTHER: 20}, 101)
    assert tolerant.reached(102, realtime=False) == 20  # the instance keeps the later one


def listen(known: ChannelWatermarks, since: int, until: int) -> int | None:
    """Ask all the time, as ticks do; what is known at the end."""
    for moment in (*range(since, until, MOMENT), until):
        reached = known.reached(moment, realtime=True)
    return reached


def test_in_real_time_a_channel_is_idle_that_is_silent_for_a_while() -> None:
    known = watermarks(EventInput(LEFT, channels=2))
    known.claim({ONE: 50}, 10)
    assert known.reached(11, realtime=True) is None, "one of the two has not spoken"
    known.claim({TWO: 30}, 20)
    assert known.reached(21, realtime=True) == 30
    listen(known, 21, IDLE_AFTER)
    known.claim({ONE: 80}, IDLE_AFTER)
    assert known.reached(IDLE_AFTER + 19, realtime=True) == 30
    assert known.reached(IDLE_AFTER + 20, realtime=True) == 80
    known.claim({TWO: 60}, IDLE_AFTER + 30)
    assert known.reached(IDLE_AFTER + 31, realtime=True) == 80
    assert listen(known, IDLE_AFTER + 31, 9 * IDLE_AFTER) == 80, "all are idle: the latest counts"


def test_in_real_time_an_input_waits_for_channels_that_may_be_there() -> None:
    source = watermarks(EventInput(LEFT, idle_after=100))
    source.claim({ONE: 50}, 10)
    assert source.reached(109, realtime=True) is None
    source.claim({TWO: 30, ONE: 60}, 109)
    assert source.reached(110, realtime=True) == 30
    source.claim({THREE: 5}, 111)
    assert source.reached(112, realtime=True) == 30, "one that comes later takes nothing back"
    short = watermarks(EventInput(LEFT, channels=2))
    short.claim({ONE: 50}, 10)
    assert listen(short, 10, 10 + IDLE_AFTER - 1) is None
    short.claim({ONE: 70}, 10 + IDLE_AFTER - 1)
    assert short.reached(10 + IDLE_AFTER, realtime=True) == 70


def test_time_in_which_nothing_could_be_heard_is_no_silence() -> None:
    """Between two epochs, and while the function is busy with one channel's records, others are not silent."""
    known = watermarks(EventInput(LEFT, channels=2))
    known.claim({ONE: 1000, TWO: 30}, 10)
    assert known.reached(20, realtime=True) == 30
    known.begin_epoch(20 + 60 * IDLE_AFTER, realtime=True)
    assert known.reached(21 + 60 * IDLE_AFTER, realtime=True) == 30
    known.claim({ONE: 2000}, 90 * IDLE_AFTER)
    assert known.reached(90 * IDLE_AFTER + 1, realtime=True) == 30
    assert listen(known, 90 * IDLE_AFTER + 1, 92 * IDLE_AFTER) == 2000


def test_what_brings_something_in_a_batch_is_not_idle_however_long_the_batch_takes() -> None:
    known = watermarks(EventInput(LEFT), EventInput(RIGHT, idle_after=100))
    known.claim({OTHER: 20}, 1)
    known.claim({ONE: 1000}, 5000)
    assert known.reached(9000, realtime=False) == 20
    known.begin_epoch(9001, realtime=False)
    known.claim({ONE: 2000}, 9002)
    assert known.reached(9003, realtime=False) == 1000 + 1000, "it was silent in the batch, and for so long"


def test_inputs_that_are_all_idle_do_not_hold_each_other_back() -> None:
    both = watermarks(EventInput(LEFT, 1, idle_after=100), EventInput(RIGHT, 1, idle_after=100))
    both.claim({ONE: 30, OTHER: 3}, 1)
    assert both.reached(50, realtime=True) == 3
    assert both.reached(101, realtime=True) == 30
    one = watermarks(EventInput(LEFT, idle_after=100), EventInput(RIGHT, idle_after=100))
    one.claim({ONE: 30}, 1)
    assert one.reached(50, realtime=True) is None
    assert one.reached(150, realtime=True) == 30, "the other one has never spoken"


def test_a_restored_instance_waits_as_the_one_before() -> None:
    known = watermarks(EventInput(LEFT))
    known.claim({ONE: 1000}, 1)
    assert known.reached(2, realtime=True) is None
    again = ChannelWatermarks([EventInput(LEFT)])
    again.restore(known.kept, known.kept_inputs, 10)
    assert again.reached(11, realtime=True) is None
    again.claim({TWO: 30}, 12)
    assert listen(again, 12, IDLE_AFTER) is None


def test_an_input_that_is_idle_before_it_was_waited_for_comes_to_what_was_said() -> None:
    """Its only records have come at once, and after a restart they come at once again."""
    source = watermarks(EventInput(LEFT, idle_after=100))
    source.claim({ONE: 50, TWO: 30}, 10)
    assert source.reached(109, realtime=True) is None
    assert source.reached(110, realtime=True) == 50


def test_claims_of_nodes_without_event_time_count_for_nothing() -> None:
    known = watermarks(EventInput(LEFT))
    known.claim({OTHER: 10, ONE: 50}, 1)
    assert known.reached(2, realtime=False) == 50
    assert not watermarks()
    assert watermarks().reached(1, realtime=True) is None


def test_a_snapshot_has_what_was_said_and_in_which_epoch() -> None:
    known = watermarks(EventInput(LEFT), EventInput(RIGHT))
    known.claim({ONE: 50, OTHER: 60}, 1)
    known.reached(1, realtime=False)
    known.begin_epoch(2, realtime=False)
    known.claim({TWO: 70}, 3)
    again = ChannelWatermarks([EventInput(LEFT), EventInput(RIGHT)])
    again.restore(known.kept, known.kept_inputs, 1000)
    assert again.kept == known.kept == {ONE: (50, False), TWO: (70, True), OTHER: (60, False)}
    assert again.kept_inputs == {LEFT: 50, RIGHT: 60}
    assert again.reached(1001, realtime=False) == known.reached(4, realtime=False) == 60
    assert again.reached(1001, realtime=True) == 60
