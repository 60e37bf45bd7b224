"""The meaning of each operator, over batches and store protocols. Knows no Spark, no disk and no log."""
