#!/bin/sh
# Submits the word count to a standalone cluster: submit.sh spark://master:7077 /shared/log
# Every host needs the environment of PYSPARK_PYTHON, with millstream in it.
set -eu
exec spark-submit \
  --master "$1" \
  --conf spark.speculation=false \
  --conf spark.task.reaper.enabled=true \
  --conf spark.shuffle.reduceLocality.enabled=false \
  --conf "spark.pyspark.python=${PYSPARK_PYTHON:-python3}" \
  "$(dirname "$0")/wordcount_on_cluster.py" --log "$2"
