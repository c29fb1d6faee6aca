"""A program that does not stop its query: `python careless.py DIRECTORY returns|raises|stops-spark|loses-jvm`.

Says on stdout how the query ended where its session ends before it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from ledger_job import Run


def main(base: str, ending: str) -> None:
    import sessions

    setup = Run(Path(base), mode="realtime")
    setup.prepare()
    spark = sessions.session()
    query = setup.start(spark)
    while not setup.visible():
        time.sleep(0.05)
    if ending == "raises":
        raise LookupError("of the program's own")
    if ending == "returns":
        return
    if ending == "stops-spark":
        spark.stop()
    else:
        os.kill(spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)
    try:
        query.awaitTermination()
    except Exception as error:
        print(type(error).__name__, query.restarts)
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
