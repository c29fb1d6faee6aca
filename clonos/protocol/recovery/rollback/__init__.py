"""Recoveries that repeat nothing: after a failure all instances go back to checkpoints that fit together, and rows are
seen when no failure can lead behind them.

Elnozahy, Alvisi, Wang and Johnson, "A Survey of Rollback-Recovery Protocols in Message-Passing Systems", 2002,
section 3.
"""
