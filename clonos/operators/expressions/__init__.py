"""Spark's expressions, evaluated in a replica: `select`, `where` and their like behind an operator.

Spark analyses an expression where the query is defined (`clonos.spark.expression_tree`); what comes out of that, with
resolved columns, types and modes, is the `Expression` of `tree`. `compiled` turns it into a closure over a row, which
gives what Spark gives, value by value. What is not known to be equal is refused with `Unsupported`, when the query is
defined: nothing is evaluated approximately. `tests/spark/test_spark_expression_parity.py` runs both sides over the same
rows.
"""
