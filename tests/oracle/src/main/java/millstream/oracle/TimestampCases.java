package millstream.oracle;

import static millstream.oracle.Case.dsl;
import static millstream.oracle.Dsl.asNumbers;
import static millstream.oracle.Dsl.asWords;
import static millstream.oracle.Dsl.byNumber;
import static millstream.oracle.Dsl.numberStore;
import static millstream.oracle.Processes.each;
import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;
import static millstream.oracle.WindowDsl.inWindows;
import static millstream.oracle.WindowDsl.tumbling;
import static millstream.oracle.WindowDsl.windows;

import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;

/** Timestamp extractors: where the time of a record comes from, and what becomes of a bad one. */
final class TimestampCases {
    private static final TimestampExtractor OWN = (record, partitionTime) -> (Long) record.value();

    private TimestampCases() {}

    static List<Case> cases() {
        return List.of(
            numbersOut("timestamp_fail_is_the_default", b -> b.stream("in", Consumed.with(STRING, INT64)).to("out"))
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, 0).pipe("in", "a", 3L, -1),
            numbersOut("timestamp_fail", b -> stream(b, new FailOnInvalidTimestamp()).to("out"))
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, -1),
            numbersOut("timestamp_skip", b -> stream(b, new LogAndSkipOnInvalidTimestamp()).to("out"))
                .pipe("in", "a", 1L, -1).pipe("in", "a", 2L, 5).pipe("in", "a", 3L, -7).pipe("in", "a", 4L, 0)
                .pipe("in", "a", 5L, 3),
            numbersOut("timestamp_use_partition_time", b -> stream(b, new UsePartitionTimeOnInvalidTimestamp())
                    .to("out"))
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, -1).pipe("in", "a", 3L, 9).pipe("in", "a", 4L, 2)
                .pipe("in", "a", 5L, -1).pipe("in", null, null, -1),
            numbersOut("timestamp_use_partition_time_of_no_record_fails", b ->
                    stream(b, new UsePartitionTimeOnInvalidTimestamp()).to("out"))
                .pipe("in", "a", 1L, -1),
            dsl("timestamp_use_partition_time_of_each_topic", b -> {
                stream(b, "one", new UsePartitionTimeOnInvalidTimestamp()).to("out");
                stream(b, "two", new UsePartitionTimeOnInvalidTimestamp()).to("out");
            })
                .input("one", STRING, INT64).input("two", STRING, INT64).output("out", STRING, INT64)
                .pipe("one", "a", 1L, 50).pipe("two", "a", 2L, 7).pipe("two", "a", 3L, -1).pipe("one", "a", 4L, -1),
            dsl("timestamp_wall_clock_ignores_the_records", b -> stream(b, new WallclockTimestampExtractor())
                    .process(timeless()).to("out", asNumbers()))
                .input("in", STRING, INT64).output("out", STRING, INT64)
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, -1).pipe("in", "b", 3L, 0),
            numbersOut("timestamp_own_from_the_value", b -> stream(b, OWN).to("out"))
                .pipe("in", "a", 50L, 5).pipe("in", "a", 7L, -1).pipe("in", "b", 0L, 6).pipe("in", "b", -1L, 6)
                .pipe("in", "b", 8L, 7),
            numbersOut("timestamp_own_raising_fails", b -> stream(b, (record, partitionTime) ->
                    100 / (Long) record.value()).to("out"))
                .pipe("in", "a", 50L, 5).pipe("in", "a", 0L, 6),
            dsl("timestamp_own_sees_the_record", b -> b.stream("in", Consumed.with(STRING, STRING)
                    .withTimestampExtractor((record, partitionTime) ->
                        record.timestamp() * 100 + record.offset() * 10 + ((String) record.value()).length()))
                    .to("out", asWords()))
                .input("in", STRING, STRING).output("out", STRING, STRING)
                .pipe("in", "a", "x", 5).pipe("in", "a", "xyz", 3).pipe("in", null, "", 7),
            numbersOut("timestamp_own_from_partition_time", b -> stream(b, (record, partitionTime) ->
                    Math.max(record.timestamp(), partitionTime)).to("out"))
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, 3).pipe("in", "a", 3L, 9).pipe("in", "a", 4L, 8),
            numbersOut("timestamp_own_of_a_table", b -> b.table("in",
                    Consumed.with(STRING, INT64).withTimestampExtractor((record, partitionTime) ->
                        record.timestamp() + 100), numberStore("store")).toStream().to("out"))
                .pipe("in", "a", 1L, 5).pipe("in", "b", 2L, 3).pipe("in", "a", null, 9).pipe("in", "b", 4L, 1),
            numbersOut("timestamp_skip_of_a_table", b -> b.table("in",
                    Consumed.with(STRING, INT64).withTimestampExtractor(new LogAndSkipOnInvalidTimestamp()),
                    numberStore("store")).toStream().to("out"))
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, -1).pipe("in", "a", null, -1).pipe("in", "b", 4L, 1),
            numbersOut("timestamp_own_before_a_repartition", b -> stream(b, OWN).selectKey((k, v) -> "all")
                    .groupByKey(byNumber()).count(numberStore("counts")).toStream().to("out"))
                .pipe("in", "a", 50L, 5).pipe("in", "a", 7L, -1).pipe("in", "b", -2L, 6).pipe("in", "b", 80L, 6),
            windowed("timestamp_own_in_windows", OWN)
                .pipe("in", "a", 5L, 90).pipe("in", "a", 9L, 80).pipe("in", "a", 12L, 1).pipe("in", "a", 9L, 2)
                .pipe("in", "a", -1L, 3).pipe("in", "a", 20L, 4),
            windowed("timestamp_skip_in_windows", new LogAndSkipOnInvalidTimestamp())
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, -1).pipe("in", "a", 3L, 12).pipe("in", "a", 4L, -12)
                .pipe("in", "a", 5L, 9),
            windowed("timestamp_use_partition_time_in_windows", new UsePartitionTimeOnInvalidTimestamp())
                .pipe("in", "a", 1L, 5).pipe("in", "a", 2L, -1).pipe("in", "a", 3L, 12).pipe("in", "a", 4L, -12)
                .pipe("in", "a", 5L, 9),
            RandomInput.of(801, 60, 3, 20).withNullValues(0).pipe(windowed("timestamp_own_in_windows_random",
                (record, partitionTime) -> record.timestamp() - (Long) record.value())),
            RandomInput.of(802, 60, 3, 20).withNullValues(0).pipe(windowed("timestamp_never_backwards_random",
                (record, partitionTime) -> Math.max(record.timestamp(), partitionTime))));
    }

    private static KStream<String, Long> stream(StreamsBuilder b, TimestampExtractor extractor) {
        return stream(b, "in", extractor);
    }

    private static KStream<String, Long> stream(StreamsBuilder b, String topic, TimestampExtractor extractor) {
        return b.stream(topic, Consumed.with(STRING, INT64).withTimestampExtractor(extractor));
    }

    private static Case numbersOut(String name, Consumer<StreamsBuilder> body) {
        return dsl(name, body).input("in", STRING, INT64).output("out", STRING, INT64);
    }

    private static Case windowed(String name, TimestampExtractor extractor) {
        return dsl(name, b -> stream(b, extractor).groupByKey(byNumber()).windowedBy(tumbling(10, 0))
                .count(windows("counts", INT64)).toStream().to("out"))
            .input("in", STRING, INT64).output("out", inWindows(10), INT64);
    }

    /** Gives each record time 1: the wall clock is never the same. */
    private static ProcessorSupplier<String, Long, String, Long> timeless() {
        return each((context, record) -> context.forward(record.withTimestamp(1)));
    }
}
