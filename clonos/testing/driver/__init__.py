"""A test driver for operators: it runs one instance in the test's own process, without a JVM and without Spark.

    from clonos.testing.driver import OperatorDriver, stream

    payments = stream("card string, amount double")
    driver = OperatorDriver(payments.groupBy("card").process(review, "card string, spent double", name="review"))
    driver.feed([("a", 10.0)])
    driver.kill()  # a new instance repeats what was recorded, and must say the same

docs/testing.md has the whole story.
"""

from clonos.testing.driver.life import SideOutput
from clonos.testing.driver.operator_driver import OperatorDriver
from clonos.testing.driver.streams import stream

__all__ = ["OperatorDriver", "SideOutput", "stream"]
