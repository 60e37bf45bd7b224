package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Case.headers;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Dsl.words;
import static millstream.oracle.Processes.each;
import static millstream.oracle.Processes.starting;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static org.apache.kafka.streams.processor.PunctuationType.STREAM_TIME;
import static org.apache.kafka.streams.processor.PunctuationType.WALL_CLOCK_TIME;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** schedule: punctuators in stream time and in wall-clock time. */
final class PunctuatorCases {
    private PunctuatorCases() {}

    static List<Case> cases() {
        return List.of(
            streamTime(dsl("punctuate_stream_time", b -> words(b, "in").process(ticking(STREAM_TIME, "tick", 10))
                .to("out", asWords()))),
            dsl("punctuate_stream_time_starting_late", b -> words(b, "in").process(ticking(STREAM_TIME, "tick", 10))
                .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 1005).pipe("in", "a", "x", 1009).pipe("in", "a", "x", 1010)
                .pipe("in", "a", "x", 1011),
            wallClock(dsl("punctuate_wall_clock", b -> words(b, "in").process(ticking(WALL_CLOCK_TIME, "tick", 10))
                .to("out", asWords()))),
            streamTime(wallClock(dsl("punctuate_both_kinds", b -> words(b, "in")
                .process(ticking(STREAM_TIME, "stream", 10))
                .process(ticking(WALL_CLOCK_TIME, "wall", 10)).to("out", asWords())))),
            streamTime(dsl("punctuate_two_intervals", b -> words(b, "in").process(starting(context -> {
                schedule(context, STREAM_TIME, "slow", 15);
                schedule(context, STREAM_TIME, "fast", 10);
            }, PunctuatorCases::forward)).to("out", asWords()))),
            wallClock(dsl("punctuate_wall_clock_two_intervals", b -> words(b, "in").process(starting(context -> {
                schedule(context, WALL_CLOCK_TIME, "slow", 15);
                schedule(context, WALL_CLOCK_TIME, "fast", 10);
            }, PunctuatorCases::forward)).to("out", asWords()))),
            streamTime(dsl("punctuate_in_two_processors", b -> {
                KStream<String, String> in = words(b, "in");
                in.process(ticking(STREAM_TIME, "first", 10)).to("out", asWords());
                in.process(ticking(STREAM_TIME, "second", 10)).to("out", asWords());
            })),
            streamTime(dsl("punctuate_in_parent_and_child", b -> words(b, "in")
                .process(ticking(STREAM_TIME, "parent", 10)).process(ticking(STREAM_TIME, "child", 10))
                .to("out", asWords()))),
            wallClock(dsl("punctuate_wall_clock_in_two_processors", b -> {
                KStream<String, String> in = words(b, "in");
                in.process(ticking(WALL_CLOCK_TIME, "first", 10)).to("out", asWords());
                in.process(ticking(WALL_CLOCK_TIME, "second", 10)).to("out", asWords());
            })),
            streamTime(dsl("punctuate_until_cancelled_by_itself", b -> words(b, "in").process(cancelling(STREAM_TIME))
                .to("out", asWords()))),
            wallClock(dsl("punctuate_wall_clock_until_cancelled_by_itself", b -> words(b, "in")
                .process(cancelling(WALL_CLOCK_TIME)).to("out", asWords()))),
            dsl("punctuate_until_cancelled_by_a_record", b -> words(b, "in").process(switched(STREAM_TIME))
                .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5).pipe("in", "a", "start", 7).pipe("in", "a", "x", 12).pipe("in", "a", "x", 20)
                .pipe("in", "a", "stop", 31).pipe("in", "a", "x", 45).pipe("in", "a", "start", 47)
                .pipe("in", "a", "x", 49).pipe("in", "a", "x", 50),
            dsl("punctuate_wall_clock_scheduled_by_a_record", b -> words(b, "in").process(switched(WALL_CLOCK_TIME))
                .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .wallClock(7).pipe("in", "a", "start", 5).wallClock(5).wallClock(5).wallClock(9)
                .pipe("in", "a", "stop", 6).wallClock(50),
            wallClock(dsl("punctuate_scheduled_by_a_punctuator", b -> words(b, "in")
                .process(handingOver(WALL_CLOCK_TIME)).to("out", asWords()))),
            streamTime(dsl("punctuate_stream_time_scheduled_by_a_punctuator", b -> words(b, "in")
                .process(handingOver(STREAM_TIME)).to("out", asWords()))),
            streamTime(dsl("punctuate_emits_a_store", b -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("buffer"), STRING, INT64));
                words(b, "in").process(buffering(STREAM_TIME), "buffer").to("out", asNumbers());
            }))
                .output("out", STRING, INT64),
            streamTime(wallClock(dsl("punctuate_wall_clock_emits_a_store", b -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("buffer"), STRING, INT64));
                words(b, "in").process(buffering(WALL_CLOCK_TIME), "buffer").to("out", asNumbers());
            })))
                .output("out", STRING, INT64).wallClock(10),
            streamTime(dsl("punctuate_context", b -> words(b, "in").process(observing(STREAM_TIME))
                .to("out", asWords()))),
            streamTime(dsl("punctuate_wall_clock_context", b -> words(b, "in").process(observing(WALL_CLOCK_TIME))
                .to("out", asWords())))
                .wallClock(10).pipe("in", "a", "x", 1).wallClock(25),
            wallClock(dsl("punctuate_before_any_record", b -> words(b, "in").process(observing(WALL_CLOCK_TIME))
                .to("out", asWords()))),
            wallClock(dsl("punctuate_with_headers", b -> words(b, "in").process(everyTenMs((context, time) -> {
                context.forward(new Record<>("with", "headers", time, headers("h", "1")));
                context.forward(new Record<>("without", "headers", time));
            })).mapValues(v -> v + "!").to("out", asWords())))
                .pipe("in", "a", "x", 77, "from", "input").wallClock(10),
            wallClock(dsl("punctuate_to_named_child", b -> {
                KStream<String, String> ticks = words(b, "in").process(everyTenMs((context, time) -> {
                    context.forward(new Record<>("tick", "" + time, time), "right");
                    context.forward(new Record<>("tock", "" + time, time));
                }));
                ticks.mapValues(v -> "left " + v, Named.as("left")).to("out", asWords());
                ticks.mapValues(v -> "right " + v, Named.as("right")).to("out", asWords());
            })),
            wallClock(dsl("punctuate_into_a_count", b -> words(b, "in").process(ticking(WALL_CLOCK_TIME, "tick", 10))
                .groupByKey(Dsl.byWord()).count(numberStore("counts")).toStream().to("out", asNumbers())))
                .output("out", STRING, INT64),
            wallClock(dsl("punctuate_into_a_table", b -> words(b, "in").process(ticking(WALL_CLOCK_TIME, "tick", 10))
                .toTable(Dsl.wordStore("rows")).filter((k, v) -> !v.startsWith("2")).toStream().to("out"))),
            wallClock(dsl("punctuate_commits", b -> words(b, "in").process(everyTenMs((context, time) -> {
                context.commit();
                context.forward(new Record<>("tick", "" + time, time));
            })).to("out", asWords()))),
            dsl("punctuate_raising_fails", b -> words(b, "in").process(everyTenMs((context, time) -> {
                throw new IllegalStateException("no");
            })).to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5).wallClock(9).wallClock(1),
            dsl("punctuate_every_zero_is_refused", b -> words(b, "in").process(ticking(WALL_CLOCK_TIME, "tick", 0))
                .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING));
    }

    private static void forward(ProcessorContext<String, String> context, Record<String, String> record) {
        context.forward(record);
    }

    private static Cancellable schedule(
            ProcessorContext<String, String> context, PunctuationType type, String name, long intervalMs) {
        return context.schedule(Duration.ofMillis(intervalMs), type,
            time -> context.forward(new Record<>(name, "" + time, time)));
    }

    /** Passes records on, and its own name and the time at every punctuation. */
    private static ProcessorSupplier<String, String, String, String> ticking(
            PunctuationType type, String name, long intervalMs) {
        return starting(context -> schedule(context, type, name, intervalMs), PunctuatorCases::forward);
    }

    /** Passes records on, and does something every 10 ms of the wall clock. */
    private static ProcessorSupplier<String, String, String, String> everyTenMs(
            BiConsumer<ProcessorContext<String, String>, Long> tick) {
        return starting(
            context -> context.schedule(Duration.ofMillis(10), WALL_CLOCK_TIME, time -> tick.accept(context, time)),
            PunctuatorCases::forward);
    }

    /** The first punctuation cancels its schedule and starts another. */
    private static ProcessorSupplier<String, String, String, String> handingOver(PunctuationType type) {
        return starting(context -> {
            List<Cancellable> first = new ArrayList<>();
            first.add(context.schedule(Duration.ofMillis(10), type, time -> {
                context.forward(new Record<>("first", "" + time, time));
                first.get(0).cancel();
                schedule(context, type, "second", 4);
            }));
        }, PunctuatorCases::forward);
    }

    /** Cancels its punctuator at the second punctuation. */
    private static ProcessorSupplier<String, String, String, String> cancelling(PunctuationType type) {
        return starting(context -> {
            List<Cancellable> schedule = new ArrayList<>();
            List<Long> times = new ArrayList<>();
            schedule.add(context.schedule(Duration.ofMillis(10), type, time -> {
                times.add(time);
                context.forward(new Record<>("tick", times.toString(), time));
                if (times.size() == 2) {
                    schedule.get(0).cancel();
                }
            }));
        }, PunctuatorCases::forward);
    }

    /** "start" schedules a punctuator, "stop" cancels it. */
    private static ProcessorSupplier<String, String, String, String> switched(PunctuationType type) {
        Map<String, Cancellable> running = new HashMap<>();
        return each((context, record) -> {
            context.forward(record);
            if (record.value().equals("start")) {
                running.put("it", schedule(context, type, "tick", 10));
            } else if (record.value().equals("stop")) {
                running.remove("it").cancel();
            }
        });
    }

    /** Counts records per key; every 10 ms it emits the counts and forgets them. */
    private static ProcessorSupplier<String, String, String, Long> buffering(PunctuationType type) {
        return starting(context -> context.schedule(Duration.ofMillis(10), type, time -> {
            KeyValueStore<String, Long> buffer = context.getStateStore("buffer");
            List<KeyValue<String, Long>> rows = new ArrayList<>();
            try (KeyValueIterator<String, Long> all = buffer.all()) {
                all.forEachRemaining(rows::add);
            }
            for (KeyValue<String, Long> row : rows) {
                context.forward(new Record<>(row.key, row.value, time));
                buffer.delete(row.key);
            }
        }), (context, record) -> {
            KeyValueStore<String, Long> buffer = context.getStateStore("buffer");
            Long before = buffer.get(record.key());
            buffer.put(record.key(), before == null ? 1 : before + 1);
        });
    }

    /**
     * Swallows records; at every punctuation it tells what the context knows.
     * Where there is no record, Kafka hands out metadata without a topic, which counts as none here.
     */
    private static ProcessorSupplier<String, String, String, String> observing(PunctuationType type) {
        return starting(context ->
            context.schedule(Duration.ofMillis(10), type, time -> context.forward(new Record<>("seen",
            "metadata " + context.recordMetadata().map(RecordMetadata::topic)
                .orElse("none") + " stream " + context.currentStreamTimeMs()
                + " system " + context.currentSystemTimeMs() + " time " + time, time))), (context, record) -> {});
    }

    private static Case streamTime(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING)
            .pipe("in", "a", "x", 3).pipe("in", "b", "x", 5).pipe("in", "a", "x", 10).pipe("in", "a", "x", 12)
            .pipe("in", "c", "x", 45).pipe("in", "a", "late", 20).pipe("in", "a", "x", 49).pipe("in", "a", "x", 50)
            .pipe("in", "b", "x", 61);
    }

    private static Case wallClock(Case test) {
        return test.input("in", STRING, STRING).output("out", STRING, STRING)
            .wallClock(9).wallClock(1).pipe("in", "a", "x", 3).wallClock(5).wallClock(30).wallClock(4).wallClock(1);
    }
}
