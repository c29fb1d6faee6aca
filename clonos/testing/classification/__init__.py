"""What an operator depends on, found out by experiment, without Spark.

    from clonos.testing.classification import classify
    from clonos.testing.driver import stream

    payments = stream("card string, amount double")
    found = classify(payments.groupBy("card").process(review, "card string, spent double", name="review"))
    assert found.meets(Requirement.RECORDED), found.examples

docs/classify.md has the whole story.
"""

from clonos.testing.classification.classification import Classification, Requirement
from clonos.testing.classification.classify import classify
from clonos.testing.classification.laboratory import Laboratory

__all__ = ["Classification", "Laboratory", "Requirement", "classify"]
