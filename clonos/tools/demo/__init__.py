"""The demo: one job, two systems, the same failures, and an oracle that looks only at what became visible.

The job of `clonos.tools.flights` runs twice side by side on the same input: natively, as well as Spark itself can
do it, and causally. While both run, a scenario kills parts of them. Then `clonos.testing.ledger` judges both output
tables.

| module | does |
| --- | --- |
| `command` | the command line |
| `plan` | the scenarios: what is killed when |
| `job` | what a driver is told, and the line protocol between a driver and the harness |
| `native`, `run_native` | the job on stock Spark, and its driver process |
| `run_causal` | the job on this library, and its driver process |
| `driver` | the harness's hold on a driver process: start, ask, kill with all its children |
| `watch` | follows an output table and notes when each row became visible |
| `harness` | runs one scenario in one mode with one or both systems |
| `verdicts` | what a run showed: exact, wrong, or nothing because it was not struck as planned |
| `report`, `picture` | progress, comparison table, JSON lines; the one picture |
| `words` | the verdict on one case in words |
"""
