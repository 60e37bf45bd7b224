package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byWord;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.wordTable;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Processes.each;
import static millstream.oracle.Processes.eachValue;
import static millstream.oracle.Processes.toWords;
import static millstream.oracle.Processes.toNumbers;
import static millstream.oracle.Processes.valuesToWords;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import java.util.List;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** KStream.process and processValues: forwarding, stores, and what the context tells. */
final class ProcessorCases {
    /** Counts the records of a key in the store "counts" and forwards the count. */
    private static final ProcessorSupplier<String, String, String, Long> COUNT = each((context, record) -> {
        KeyValueStore<String, Long> counts = context.getStateStore("counts");
        Long before = counts.get(record.key());
        counts.put(record.key(), before == null ? 1 : before + 1);
        context.forward(record.withValue(counts.get(record.key())));
    });

    private static final ProcessorSupplier<String, String, String, Long> READ = each((context, record) -> {
        KeyValueStore<String, Long> counts = context.getStateStore("counts");
        context.forward(record.withValue(counts.get(record.key())));
    });

    private static final FixedKeyProcessorSupplier<String, String, Long> COUNT_VALUES = eachValue((context, record) -> {
        KeyValueStore<String, Long> counts = context.getStateStore("counts");
        Long before = counts.get(record.key());
        counts.put(record.key(), before == null ? 1 : before + 1);
        context.forward(record.withValue(counts.get(record.key())));
    });

    private ProcessorCases() {}

    static List<Case> cases() {
        return List.of(
            script(dsl("process", b -> words(b, "in").process(toWords((context, record) -> {
                if (record.value() != null) {
                    context.forward(record.withValue(record.value() + "1"));
                    context.forward(record.withKey("other").withValue(record.value() + "2"));
                }
            })).to("out", asWords()))),
            script(dsl("process_named", b -> words(b, "in").process(toWords((context, record) ->
                context.forward(record)), Named.as("pass")).to("out", asWords()))),
            script(dsl("process_without_output", b -> {
                KStream<String, String> in = words(b, "in");
                in.process(each((ProcessorContext<Void, Void> context, Record<String, String> record) -> {}));
                in.to("out");
            })),
            script(dsl("process_forwards_without_children", b -> {
                KStream<String, String> in = words(b, "in");
                in.process(toWords((context, record) -> context.forward(record)));
                in.to("out");
            })),
            counting(dsl("process_with_store", b -> {
                b.addStateStore(counts());
                words(b, "in").process(COUNT, "counts").to("out", asNumbers());
            })),
            counting(dsl("process_with_store_named", b -> {
                b.addStateStore(counts());
                words(b, "in").process(COUNT, Named.as("counter"), "counts").to("out", asNumbers());
            })),
            counting(dsl("process_with_cached_store", b -> {
                b.addStateStore(counts().withCachingEnabled());
                words(b, "in").process(COUNT, "counts").to("out", asNumbers());
            })),
            counting(dsl("process_writer_before_reader", b -> {
                b.addStateStore(counts());
                KStream<String, String> in = words(b, "in");
                in.process(COUNT, "counts").to("out", asNumbers());
                in.process(READ, "counts").to("read", asNumbers());
            }))
                .output("read", STRING, INT64),
            counting(dsl("process_reader_before_writer", b -> {
                b.addStateStore(counts());
                KStream<String, String> in = words(b, "in");
                in.process(READ, "counts").to("read", asNumbers());
                in.process(COUNT, "counts").to("out", asNumbers());
            }))
                .output("read", STRING, INT64),
            counting(dsl("process_parent_and_child_share_a_store", b -> {
                b.addStateStore(counts());
                words(b, "in").process(COUNT, Named.as("parent"), "counts").mapValues(v -> "v" + v)
                    .process(COUNT, Named.as("child"), "counts").to("out", asNumbers());
            })),
            counting(dsl("process_child_reads_between_writes", b -> {
                b.addStateStore(counts());
                words(b, "in").process(toWords((context, record) -> {
                    KeyValueStore<String, Long> counts = context.getStateStore("counts");
                    for (long i = 1; i <= 3; i++) {
                        counts.put(record.key(), i * 10);
                        context.forward(record);
                    }
                    counts.delete(record.key());
                    context.forward(record);
                }), "counts").process(READ, "counts").to("out", asNumbers());
            })),
            counting(dsl("process_shared_store_joins_two_sources", b -> {
                b.addStateStore(counts());
                words(b, "in").process(COUNT, "counts").to("out", asNumbers());
                words(b, "other").process(READ, "counts").to("read", asNumbers());
            }))
                .input("other", STRING, STRING).output("read", STRING, INT64)
                .pipe("other", "a", "?", 40).pipe("other", "nobody", "?", 1),
            script(dsl("process_reads_the_store_of_a_table", b -> {
                wordTable(b, "rows", "rows-store");
                words(b, "in").process(toWords((context, record) -> {
                    KeyValueStore<String, ValueAndTimestamp<String>> rows = context.getStateStore("rows-store");
                    ValueAndTimestamp<String> row = rows.get(record.key());
                    context.forward(record.withValue(row == null ? "none" : row.value() + "@" + row.timestamp()));
                }), "rows-store").to("out", asWords());
            }))
                .input("rows", STRING, STRING)
                .pipe("rows", "a", "row", 50).pipe("in", "a", "?", 2).pipe("rows", "a", "older", 3)
                .pipe("in", "a", "?", 1)
                .pipe("rows", "a", null, 4).pipe("in", "a", "?", 5),
            script(dsl("process_reads_the_store_of_a_count", b -> {
                KStream<String, String> in = words(b, "in");
                in.groupByKey(byWord()).count(numberStore("counts"));
                in.process(toWords((context, record) -> {
                    KeyValueStore<String, ValueAndTimestamp<Long>> counts = context.getStateStore("counts");
                    ValueAndTimestamp<Long> count = counts.get(record.key());
                    context.forward(record.withValue(count == null ? "none" : count.value() + "@" + count.timestamp()));
                }), "counts").to("out", asWords());
            })),
            script(dsl("process_forwards_to_named_children", b -> {
                KStream<String, String> routed = words(b, "in").process(toWords((context, record) -> {
                    context.forward(record, "x".equals(record.value()) ? "left" : "right");
                    context.forward(record.withValue("both"));
                }));
                routed.mapValues(v -> "left " + v, Named.as("left")).to("out", asWords());
                routed.mapValues(v -> "right " + v, Named.as("right")).to("out", asWords());
            })),
            dsl("process_forwarding_to_unknown_child_fails", b -> words(b, "in")
                    .process(toWords((context, record) -> context.forward(record, record.value())))
                    .filter((k, v) -> true, Named.as("child")).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "child", 1).pipe("in", "a", "stranger", 2),
            script(dsl("process_changes_timestamps", b -> words(b, "in").process(toWords((context, record) -> {
                context.forward(record.withTimestamp(record.timestamp() + 1000));
                context.forward(record.withTimestamp(0));
                context.forward(record);
            })).to("out", asWords()))),
            counting(dsl("process_values_changes_timestamps_before_count", b -> words(b, "in")
                .processValues(valuesToWords((context, record) -> {
                    context.forward(record.withTimestamp(record.timestamp() + 1000));
                    context.forward(record.withTimestamp(0));
                })).groupByKey(byWord()).count(numberStore("tally")).toStream().to("out", asNumbers()))),
            dsl("process_negative_timestamp_fails", b -> words(b, "in")
                    .process(toWords((context, record) ->
                        context.forward(record.withTimestamp(record.timestamp() - 5))))
                    .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5).pipe("in", "a", "x", 4),
            script(dsl("process_metadata", b -> b.<String, String>stream(List.of("in", "other"))
                    .process(toWords((context, record) ->
                        context.forward(record.withValue(position(context))))).to("out", asWords())))
                .input("other", STRING, STRING)
                .pipe("other", "a", "x", 1).pipe("in", "a", "x", 2).pipe("other", "a", "x", 3),
            script(dsl("process_metadata_behind_other_operators", b -> words(b, "in")
                    .flatMapValues(v -> List.of("1", "2")).merge(words(b, "other"))
                    .process(toWords((context, record) ->
                        context.forward(record.withValue(record.value() + " " + position(context)))))
                .to("out", asWords())))
                .input("other", STRING, STRING)
                .pipe("other", "a", "x", 1),
            script(dsl("process_metadata_behind_a_cached_table", b -> words(b, "in").groupByKey(byWord())
                .count(numberStore("counts")).toStream()
                .process(each((ProcessorContext<String, String> context, Record<String, Long> record) ->
                    context.forward(record.withValue(record.value() + " " + position(context)))))
                .to("out", asWords()))),
            script(dsl("process_context", b -> words(b, "in").process(toWords((context, record) ->
                    context.forward(record.withValue("task " + context.taskId() + " stream "
                        + context.currentStreamTimeMs() + " system " + context.currentSystemTimeMs()))))
                            .to("out", asWords())))
                .wallClock(1000).pipe("in", "a", "x", 3).wallClock(500).pipe("in", "a", "x", 100),
            script(dsl("process_stream_time_of_two_topics", b -> words(b, "in").merge(words(b, "other"))
                    .process(toWords((context, record) ->
                        context.forward(record.withValue("" + context.currentStreamTimeMs())))).to("out", asWords())))
                .input("other", STRING, STRING)
                .pipe("other", "a", "x", 1).pipe("other", "a", "x", 70).pipe("in", "a", "x", 60),
            script(dsl("process_commits", b -> words(b, "in").process(toWords((context, record) -> {
                context.commit();
                context.forward(record);
            })).to("out", asWords()))),
            dsl("process_raising_fails", b -> words(b, "in").process(toWords((context, record) -> {
                context.forward(record);
                if (record.value() == null) {
                    throw new IllegalStateException("no value");
                }
            })).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1).pipe("in", "a", null, 2),
            dsl("process_reading_unconnected_store_fails", b -> {
                b.addStateStore(counts());
                KStream<String, String> in = words(b, "in");
                in.process(COUNT, "counts");
                in.process(READ).to("out", asNumbers());
            })
                .input("in", STRING, STRING).output("out", STRING, INT64)
                .pipe("in", "a", "x", 1),
            dsl("process_writing_to_global_store_fails", b -> {
                b.globalTable("global", Dsl.wordStore("everywhere"));
                words(b, "in").process(toWords((context, record) -> {
                    KeyValueStore<String, ValueAndTimestamp<String>> store = context.getStateStore("everywhere");
                    store.put(record.key(), ValueAndTimestamp.make(record.value(), 1));
                })).to("out", asWords());
            })
                .input("global", STRING, STRING).input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("global", "a", "x", 1).pipe("in", "a", "x", 1),
            counting(dsl("process_sets_the_repartition_flag", b -> words(b, "in")
                .process(toWords((context, record) -> context.forward(record.withKey(record.value()))))
                .groupByKey(byWord()).count(numberStore("tally")).toStream().to("out", asNumbers()))),
            script(dsl("process_values", b -> words(b, "in")
                .processValues(valuesToWords((context, record) -> {
                    if (record.value() != null) {
                        context.forward(record.withValue(record.key() + record.value()));
                        context.forward(record.withValue(null));
                    }
                })).to("out", asWords()))),
            counting(dsl("process_values_with_store", b -> {
                b.addStateStore(counts());
                words(b, "in").processValues(COUNT_VALUES, "counts").to("out", asNumbers());
            })),
            counting(dsl("process_values_named", b -> {
                b.addStateStore(counts());
                words(b, "in").processValues(COUNT_VALUES, Named.as("counter"), "counts").to("out", asNumbers());
            })),
            counting(dsl("process_values_keeps_the_key", b -> {
                b.addStateStore(counts());
                words(b, "in").processValues(COUNT_VALUES, "counts")
                    .groupByKey(Dsl.byNumber()).count(numberStore("tally")).toStream().to("out", asNumbers());
            })),
            counting(dsl("process_then_to_table", b -> {
                b.addStateStore(counts());
                words(b, "in").process(COUNT, "counts").toTable(numberStore("rows")).toStream().to("out");
            })),
            counting(dsl("process_two_stores", b -> {
                b.addStateStore(counts());
                b.addStateStore(Stores.timestampedKeyValueStoreBuilder(Stores.inMemoryKeyValueStore("last"), STRING,
                    STRING));
                words(b, "in").process(toNumbers((context, record) -> {
                    KeyValueStore<String, Long> counts = context.getStateStore("counts");
                    KeyValueStore<String, ValueAndTimestamp<String>> last = context.getStateStore("last");
                    ValueAndTimestamp<String> before = last.get(record.key());
                    last.put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
                    counts.put(record.key(), before == null ? -1 : before.timestamp());
                    context.forward(record.withValue(counts.get(record.key())));
                }), "last", "counts").to("out", asNumbers());
            })));
    }

    private static String position(ProcessorContext<?, ?> context) {
        RecordMetadata metadata = context.recordMetadata().orElseThrow();
        return metadata.topic() + "/" + metadata.partition() + "/" + metadata.offset();
    }

    private static StoreBuilder<KeyValueStore<String, Long>> counts() {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("counts"), STRING, INT64);
    }

    private static Case script(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING)
            .pipe("in", "b", "x", 10).pipe("in", "a", "y", 20).pipe("in", "b", "x", 5).pipe("in", "c", null, 30)
            .pipe("in", "a", "x", 30);
    }

    private static Case counting(Case test) {
        return script(test).output("out", STRING, INT64);
    }
}
