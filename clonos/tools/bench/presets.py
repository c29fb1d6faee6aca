"""Plans by name.

- *smoke*: every query, mode, protection, failure and pattern once, and one search, as briefly as they can be run:
  whether all of it works. Its figures say nothing.
- *standard*: what the tables of the report are made of, in less than an hour on two cores.
- *recoveries*: the recoveries beside each other, in real time, one failure and three; and what micro-batch has.
- *hot_keys*: the same, with more and more records for one key, at a rate of which all sustain a multiple with uniform
  keys.
"""

from __future__ import annotations

from dataclasses import replace

from clonos.tools.bench.plan import Plan, combined

_SMOKE = """
q1  realtime   none,clonos     none    single
q3  microbatch clonos          none    single
q4  microbatch clonos          none    single
q5  microbatch clonos          none    single
q7  realtime   clonos          none    single
q8  realtime   clonos          none    single
q11 microbatch clonos          none    single
q13 realtime   clonos          none    single
q12 realtime   none,clonos,hot replica single
q12 microbatch none            none    single
q12 microbatch clonos          task    single
q12 realtime   clonos          query   single
q12 microbatch passive         replica staggered
q12 realtime   clonos          replica together
q12 realtime   eager,event_log,coordinated,uncoordinated replica single
q12 microbatch batch           replica single
"""
_FAILURES = """
q1,q3,q8,q12 microbatch,realtime none,clonos,hot replica    single
q12          realtime            none,clonos,hot replica    staggered,together
q12          realtime            passive         replica    single
q12          realtime            none,clonos     task,query single
q1,q3,q8     microbatch          none,clonos     task       single
"""
_RECOVERIES = """
q1,q12       realtime none replica single
q1,q3,q8,q12 realtime clonos,hot,eager,event_log,coordinated,uncoordinated replica single
q12          realtime clonos,hot,eager,event_log,coordinated,uncoordinated replica staggered,together
q3,q12       microbatch none,clonos,batch replica single
"""
_HOT_KEYS = "q3,q12 realtime clonos,eager,coordinated,uncoordinated replica single"
_SKEWS = (0.0, 0.1, 0.2, 0.3)
_OTHERS = "q4,q5,q7,q11,q13 microbatch none,clonos none single"
_SEARCHES = """
q1,q12 realtime   none,clonos none single
q12    microbatch none,clonos none single
"""

PRESETS = {
    "smoke": Plan(
        cells=combined(_SMOKE, rate=200, seconds=4, warm_up=1),
        searches=combined("q12 realtime clonos none single", rate=25_600, seconds=4, warm_up=1, probe=True),
        within=4.0,
    ),
    "standard": Plan(
        cells=combined(_FAILURES, rate=200, seconds=24, warm_up=8)
        + combined(_OTHERS, rate=500, seconds=15, warm_up=8),
        searches=combined(_SEARCHES, rate=4000, seconds=15, warm_up=10, probe=True),
        within=1.25,
    ),
    "recoveries": Plan(
        cells=combined(_RECOVERIES, rate=200, seconds=20, warm_up=8),
        searches=combined(
            "q12 realtime none,clonos,eager,event_log,coordinated,uncoordinated none single\n"
            "q12 microbatch none,clonos,batch none single",
            rate=4000,
            seconds=15,
            warm_up=10,
            probe=True,
        ),
        within=1.25,
    ),
    "hot_keys": Plan(
        cells=tuple(
            replace(cell, skew=skew)
            for skew in _SKEWS
            for cell in combined(_HOT_KEYS, rate=5000, seconds=16, warm_up=8)
        ),
    ),
}
