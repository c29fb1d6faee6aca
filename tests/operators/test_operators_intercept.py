"""Interception: what functions ask of Python's clocks and random generators is repeated, and only that."""

from __future__ import annotations

import copy
import datetime as dt
import gc
import importlib
import logging
import os
import pickle
import queue
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from random import randint as bound_randint
from time import time as bound_time
from typing import Any
from uuid import uuid4 as bound_uuid4

import numpy as np
import pandas as pd
import pytest

from clonos.errors import ConfigurationError, DivergenceError
from clonos.operators.intercept import install as interception
from clonos.testing.driver import OperatorDriver, stream
from clonos.testing.driver.operator_driver import START

IDS = stream("id long")
SECONDS = START.timestamp()
LOCAL = datetime.fromtimestamp(SECONDS)


class Moment(datetime):
    """A user's own kind of datetime."""


CLOCKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "time.time": (lambda: time.time(), SECONDS),
    "time.time_ns": (lambda: time.time_ns(), int(SECONDS) * 10**9),
    "time.monotonic": (lambda: time.monotonic(), SECONDS),
    "time.monotonic_ns": (lambda: time.monotonic_ns(), int(SECONDS) * 10**9),
    "time.perf_counter": (lambda: time.perf_counter(), SECONDS),
    "time.perf_counter_ns": (lambda: time.perf_counter_ns(), int(SECONDS) * 10**9),
    "time.clock_gettime": (
        lambda: [time.clock_gettime(each) for each in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)],
        [SECONDS, SECONDS],
    ),
    "time.clock_gettime_ns": (
        lambda: [time.clock_gettime_ns(each) for each in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)],
        [int(SECONDS) * 10**9] * 2,
    ),
    "time.gmtime": (lambda: time.gmtime()[:6], (2026, 1, 1, 0, 0, 0)),
    "time.localtime": (lambda: time.localtime()[:6], LOCAL.timetuple()[:6]),
    "time.ctime": (lambda: time.ctime(), LOCAL.ctime()),
    "time.strftime": (lambda: time.strftime("%Y-%m-%d %H:%M:%S"), f"{LOCAL:%Y-%m-%d %H:%M:%S}"),
    "time.asctime": (lambda: time.asctime(), LOCAL.ctime()),
    "datetime.datetime.now": (
        lambda: [datetime.now(), datetime.now(dt.UTC), datetime.now(tz=dt.UTC)],
        [LOCAL, START, START],
    ),
    "datetime.datetime.utcnow": (lambda: datetime.utcnow(), START.replace(tzinfo=None)),
    "datetime.date.today": (
        lambda: [date.today(), datetime.today(), Moment.today()],
        [LOCAL.date(), LOCAL, Moment.fromtimestamp(SECONDS)],
    ),
    "a bound name": (lambda: bound_time(), SECONDS),
    "a subclass": (lambda: Moment.now(), Moment.fromtimestamp(SECONDS)),
    "pandas": (lambda: pd.Timestamp.now().to_pydatetime(), LOCAL),
}
"""By name what asks for it, and what the clock of the driver says."""

MEASURED: dict[str, Callable[[], Any]] = {
    "time.process_time": lambda: time.process_time(),
    "time.process_time_ns": lambda: time.process_time_ns(),
    "time.thread_time": lambda: time.thread_time(),
    "time.thread_time_ns": lambda: time.thread_time_ns(),
    "time.clock_gettime of another clock": lambda: time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID),
    "time.clock_gettime_ns of another clock": lambda: time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID),
}


def many(draw: Callable[[], Any]) -> Callable[[], Any]:
    """So many draws that they are not the same by chance."""
    return lambda: [draw() for _ in range(64)]


DRAWS: dict[str, Callable[[], Any]] = {
    "random.random": lambda: random.random(),
    "random.uniform": lambda: random.uniform(1, 2),
    "random.triangular": lambda: random.triangular(),
    "random.randint": many(lambda: random.randint(1, 6)),
    "random.randrange": many(lambda: random.randrange(10)),
    "random.choice": many(lambda: random.choice("abcdef")),
    "random.choices": lambda: random.choices("abcdef", k=40),
    "random.sample": lambda: random.sample(range(10**6), 9),
    "random.shuffle": lambda: shuffled(random.shuffle),
    "random.getrandbits": lambda: random.getrandbits(99),
    "random.randbytes": lambda: random.randbytes(9),
    "random.gauss": lambda: random.gauss(0, 1),
    "random.normalvariate": lambda: random.normalvariate(0, 1),
    "random.lognormvariate": lambda: random.lognormvariate(0, 1),
    "random.expovariate": lambda: random.expovariate(1),
    "random.vonmisesvariate": lambda: random.vonmisesvariate(1, 1),
    "random.gammavariate": lambda: random.gammavariate(1, 1),
    "random.betavariate": lambda: random.betavariate(1, 1),
    "random.paretovariate": lambda: random.paretovariate(1),
    "random.weibullvariate": lambda: random.weibullvariate(1, 1),
    "random.seed": lambda: (random.seed(), random.random())[1],
    "random.getstate": lambda: (random.random(), hash(random.getstate()))[1],
    "random.setstate": lambda: (random.setstate(random.getstate()), random.random())[1],
    "random.Random": lambda: random.Random().random(),
    "random.SystemRandom": lambda: [
        random.SystemRandom().random(),
        random.SystemRandom().getrandbits(70),
        random.SystemRandom().randbytes(9),
    ],
    "os.urandom": lambda: os.urandom(16),
    "os.getrandom": lambda: os.getrandom(16),
    "secrets": lambda: [secrets.token_bytes(), secrets.token_hex(), secrets.token_urlsafe()],
    "secrets.randbits": lambda: [secrets.randbits(70), secrets.randbelow(10**9)],
    "secrets.choice": many(lambda: secrets.choice("abcdef")),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "numpy.random.random": lambda: np.random.random(3).tolist(),
    "numpy.random.normal": lambda: np.random.normal(),
    "numpy.random.permutation": lambda: np.random.permutation(40).tolist(),
    "numpy.random.seed": lambda: (np.random.seed(), np.random.random())[1],
    "numpy.random.sample": lambda: [np.random.sample(), np.random.ranf()],
    "numpy.random.default_rng": lambda: np.random.default_rng().random(),
    "numpy.random.RandomState": lambda: np.random.RandomState().random_sample(),
    "numpy.random.SeedSequence": lambda: np.random.SeedSequence().entropy,
    "numpy.random.mtrand._rand": lambda: [
        np.random.mtrand._rand.random_sample(),
        np.random.mtrand._rand.permutation(40).tolist(),
        (np.random.mtrand._rand.seed(), np.random.mtrand._rand.normal())[1],
    ],
    "pandas.DataFrame.sample": lambda: pd.DataFrame({"a": range(99)}).sample(40)["a"].tolist(),
    "bound names": lambda: [bound_randint(1, 10**9), bound_uuid4()],
}


def shuffled(shuffle: Callable[[Any], None]) -> list[int]:
    values = list(range(60))
    shuffle(values)
    return values


def asked(ask: Callable[[], Any]) -> Any:
    def fn(row: Any, ctx: Any) -> Any:
        return row.id, repr(ask())

    return IDS.map(fn, "id long, said string", name="asks")


def test_everything_is_tried() -> None:
    tried = CLOCKS.keys() | MEASURED.keys() | DRAWS.keys()
    left = [name for name in interception.names() if name not in tried]
    # The functions of NumPy's generator are found by what they are methods of: a few stand for all.
    assert all(name.startswith("numpy.random.") for name in left), left
    assert {"numpy.random.poisson", "numpy.random.get_state", "numpy.random.choice"} <= set(left)


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_say_what_is_recorded(name: str) -> None:
    ask, expected = CLOCKS[name]
    with OperatorDriver(asked(ask), intercept=True) as driver:
        (row,) = driver.feed([(1,)])
        assert row.said == repr(expected)
        driver.advance(3600.5)
        (later,) = driver.feed([(2,)])
        assert later.said != row.said
        assert driver.kill() == []


@pytest.mark.parametrize("name", [*DRAWS, *MEASURED])
def test_draws_are_repeated(name: str) -> None:
    ask = (DRAWS | MEASURED)[name]
    with OperatorDriver(asked(ask), intercept=True) as driver:
        said = [row.said for row in driver.feed([(1,), (2,)])]
        driver.end_epoch()
        said += [row.said for row in driver.feed([(3,), (4,)])]
        said += [row.said for row in driver.feed([(5,)])]
        assert len(set(said)) == 5 or name in MEASURED
        assert driver.kill() == []
        driver.feed([(6,)])
        assert driver.kill() == []
    with OperatorDriver(asked(ask)) as driver:  # it would be found out
        driver.feed([(1,), (2,)])
        if name in DRAWS:
            with pytest.raises(DivergenceError):
                driver.kill()


# ------------------------------------------------------------------ who gets the real ones


def said_by(fn: Callable[[Any], Any], rows: int = 1) -> list[Any]:
    """What the function puts into its rows, of a life and of its replay."""

    def asks(row: Any, ctx: Any) -> Any:
        return row.id, repr(fn(ctx))

    with OperatorDriver(IDS.map(asks, "id long, said string", name="asks"), intercept=True) as driver:
        said = driver.feed([(number,) for number in range(rows)])
        assert driver.kill() == []
        return [row.said for row in said]


def is_real(reading: float) -> bool:
    return abs(reading - SECONDS) > 1000


def test_other_threads_get_the_real_clock() -> None:
    found: list[float] = []

    def fn(ctx: Any) -> float:
        thread = threading.Thread(target=lambda: found.append(time.time()))
        thread.start()
        thread.join()
        return time.time()

    assert said_by(fn) == [repr(SECONDS)]
    assert len(found) == 2 and all(map(is_real, found)) and found[0] < found[1]


def test_a_recorded_closure_gets_the_real_ones_and_is_not_run_again() -> None:
    found: list[Any] = []

    def closure() -> str:
        found.append((time.time(), random.random(), datetime.now(), uuid.uuid4(), np.random.random()))
        return "done"

    def fn(ctx: Any) -> Any:
        return ctx.call(closure), random.random(), ctx.effect(closure, key="k"), random.random()

    (said,) = said_by(fn)
    assert len(found) == 2 and is_real(found[0][0]) and found[0][2] > LOCAL + dt.timedelta(days=1)
    assert len({*found[0], *found[1]}) == 10
    assert len(set(said.split(", "))) == 4


def test_the_services_of_ctx_record_what_they_did() -> None:
    def fn(ctx: Any) -> Any:
        return ctx.now(), ctx.now(exact=True), ctx.random.random(), ctx.uuid4(), time.time(), datetime.now()

    assert len(said_by(fn, rows=3)) == 3


def test_what_is_imported_in_a_step_gets_the_real_ones(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "loaded_late.py").write_text(
        "import time, random\nAT = time.time()\nDRAWN = random.Random().random()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def fn(ctx: Any) -> float:
        late = importlib.import_module("loaded_late")
        assert is_real(late.AT)
        return random.random()

    try:
        said_by(fn)  # in the replay it is there
    finally:
        sys.modules.pop("loaded_late", None)


def test_log_lines_have_the_time_at_which_they_are_written(caplog: pytest.LogCaptureFixture) -> None:
    logger, replays = logging.getLogger("a function"), iter([True, False])
    formatted: list[float] = []

    class Stamped(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            formatted.append(time.time())

    handler = Stamped()
    logger.addHandler(handler)

    def fn(ctx: Any) -> float:
        if next(replays):
            logger.warning("seen")  # in the replay it is not
        return time.time()

    said_by(fn)
    logger.removeHandler(handler)
    (record,) = [record for record in caplog.records if record.message == "seen"]
    assert is_real(record.created) and is_real(formatted[0])
    assert (record.filename, record.funcName) == (Path(__file__).name, "fn")


def test_finalizers_and_callbacks_of_a_collection_get_the_real_ones() -> None:
    found: list[float] = []

    class InACycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            found.append(time.time())

    def callback(phase: str, info: Any) -> None:
        found.append(time.time())

    replays = iter([True, False])

    def fn(ctx: Any) -> float:
        if next(replays):
            InACycle()
            gc.callbacks.append(callback)
            gc.collect()
            gc.callbacks.remove(callback)
        return time.time()

    assert said_by(fn) == [repr(SECONDS)]
    assert len(found) == 3 and all(map(is_real, found))


def test_the_standard_library_measures_how_long_it_waits() -> None:
    def fn(ctx: Any) -> float:
        with pytest.raises(queue.Empty):
            queue.Queue[int]().get(timeout=0.001)  # would wait for ever by a clock that stands still
        assert not threading.Event().wait(0.001)
        with tempfile.NamedTemporaryFile() as file:
            assert file.name
        return time.time()

    said_by(fn)


def test_a_loop_that_waits_for_a_time_ends(monkeypatch: Any) -> None:
    ticking = iter(range(0, 10**9, 1000))
    rounds: list[int] = []

    def fn(ctx: Any) -> int:
        end, number = time.monotonic() + 0.01, 0
        while time.monotonic() < end:
            number += 1
        rounds.append(number)
        return number

    def asks(row: Any, ctx: Any) -> Any:
        return (fn(ctx),)

    with OperatorDriver(IDS.map(asks, "n long", name="asks"), intercept=True) as driver:
        monkeypatch.setattr(type(driver._life), "clock", lambda self: next(ticking))
        driver.feed([(1,)])
        assert driver.kill() == []
    assert rounds[0] == rounds[1] > 0


def test_a_steady_clock_never_goes_back_within_a_step(monkeypatch: Any) -> None:
    readings = iter([50, 40, 60, 60, 30])

    def asks(row: Any, ctx: Any) -> Any:
        return [time.perf_counter_ns() // 1000 for _ in range(5)], time.time_ns() // 1000

    with OperatorDriver(IDS.map(asks, "n array<long>, last long", name="asks"), intercept=True) as driver:
        monkeypatch.setattr(type(driver._life), "clock", lambda self: next(readings, 20))
        (row,) = driver.feed([(1,)])
        assert (row.n, row.last) == ([50, 50, 60, 60, 60], 20)
        assert driver.kill() == []


def test_entropy_is_recorded_once_per_step_and_numpy_is_seeded_anew() -> None:
    with OperatorDriver(asked(lambda: (os.urandom(4), np.random.random())), intercept=True) as driver:
        seeds = [driver.feed([(1,), (2,), (3,)]), driver.feed([(4,)])]
        assert len({row.said for rows in seeds for row in rows}) == 4
        assert driver.kill() == []


def test_a_pure_function_is_intercepted_too() -> None:
    """It is the form for functions that take a row alone."""
    plan = IDS.map(
        lambda row: (row.id, time.time(), random.random()), "a long, b double, c double", pure=True, name="p"
    )
    with OperatorDriver(plan, intercept=True) as driver:
        driver.feed([(1,), (2,)])
        driver.end_epoch()
        (row,) = driver.feed([(3,)])
        assert row.b == SECONDS
        assert driver.kill() == []


# ------------------------------------------------------------------ what is installed


def test_everything_is_put_back() -> None:
    before = (
        time.time,
        random.random,
        os.urandom,
        np.random.normal,
        datetime.now,
        random.Random.seed,
        date.today,
    )
    first, second = (
        OperatorDriver(asked(time.time), intercept=True),
        OperatorDriver(asked(time.time), intercept=True),
    )
    first.close()
    assert interception.is_installed() and time.time is not before[0]
    assert bound_time is time.time
    second.close()
    second.close()
    assert not interception.is_installed()
    assert before == (
        time.time, random.random, os.urandom, np.random.normal, datetime.now, random.Random.seed, date.today
    )  # fmt: skip
    assert bound_time is time.time


def test_a_python_that_cannot_be_intercepted_is_refused(monkeypatch: Any) -> None:
    before = (time.time, random.random, list(gc.callbacks))
    monkeypatch.setattr(interception, "_replace_in", lambda owner, name, by: None)
    with pytest.raises(ConfigurationError, match=r"cannot replace datetime.now in \w+ 3.*use ctx.now\(\)"):
        interception.install()
    assert before == (time.time, random.random, list(gc.callbacks)) and not interception.is_installed()


def test_intercepted_functions_behave_like_the_real_ones() -> None:
    with OperatorDriver(asked(time.time), intercept=True):

        class Holder:
            clock = time.time

        assert is_real(Holder().clock()) and is_real(Holder.clock())  # no method is made of it
        for each in (time.time, random.random, np.random.normal, os.urandom, uuid.uuid4):
            assert pickle.loads(pickle.dumps(each)) is each is copy.deepcopy(each) is copy.copy(each)
        assert time.time.__name__ == "time" and "seconds" in str(time.time.__doc__)
        assert time.gmtime(0)[0] == 1970 and time.strftime("%Y", time.gmtime(0)) == "1970"
        moment = datetime.now()
        assert type(moment) is datetime is type(pickle.loads(pickle.dumps(moment)))
        assert type(Moment.now()) is Moment and isinstance(Moment.now(), datetime)
        assert datetime.now(dt.UTC).tzinfo is dt.UTC and type(date.today()) is date
        assert len(os.urandom(5)) == 5 and random.Random(5).random() == random.Random(5).random()


def test_numpys_generator_is_the_one_that_it_was_where_nothing_is_answered() -> None:
    with OperatorDriver(asked(time.time), intercept=True):
        stand_in = np.random.mtrand._rand
        assert isinstance(stand_in, np.random.RandomState)
        np.random.seed(7)
        drawn = [stand_in.normal(), np.random.normal(), stand_in.random_sample(), np.random.random_sample()]
        state = np.random.get_state()
        again = np.random.RandomState(7)
        assert drawn == [again.normal(), again.normal(), again.random_sample(), again.random_sample()]
        copied = pickle.loads(pickle.dumps(stand_in))
        assert copied.normal() == again.normal()
        following = np.random.normal()
        stand_in.set_state(state)
        assert np.random.normal() == following


def test_a_uuid_of_version_1_is_one() -> None:
    (said,) = said_by(lambda ctx: [uuid.uuid1(), uuid.uuid1(5, 6)])
    one, other = (uuid.UUID(text) for text in said.split("'")[1::2])
    for each in (one, other):
        assert each.version == 1 and each.variant == uuid.RFC_4122
        assert datetime(1582, 10, 15) + dt.timedelta(microseconds=each.time // 10) == START.replace(
            tzinfo=None
        )
    assert one.node >> 40 & 1 and (other.node, other.clock_seq) == (5, 6)


GENERATOR = random.Random()


def device() -> bytes:
    with Path("/dev/urandom").open("rb") as file:
        return file.read(8)


OUTSIDE: dict[str, Callable[[], Any]] = {
    "a device": device,
    "another program": lambda: subprocess.run(["date", "+%N"], capture_output=True, check=True).stdout,
    "a generator of the process": GENERATOR.random,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_reaches_the_world_in_another_way_is_found_out(name: str) -> None:
    with OperatorDriver(asked(OUTSIDE[name]), intercept=True) as driver:
        driver.feed([(1,)])
        with pytest.raises(DivergenceError):
            driver.kill()
    with OperatorDriver(recorded(OUTSIDE[name]), intercept=True) as driver:  # as docs/intercept.md advises
        driver.feed([(1,)])
        assert driver.kill() == []


def recorded(ask: Callable[[], Any]) -> Any:
    def fn(row: Any, ctx: Any) -> Any:
        return row.id, repr(ctx.call(ask))

    return IDS.map(fn, "id long, said string", name="asks")
