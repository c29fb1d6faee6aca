"""The commands of `clonos`, and the jobs that the demonstration and the benchmarks run."""
