"""One task's life: order, process, punctuate, seal. Knows no Spark; engines and the test driver call it."""
