"""Everything that runs beside Spark: replicas, their servers, and services on other hosts."""
