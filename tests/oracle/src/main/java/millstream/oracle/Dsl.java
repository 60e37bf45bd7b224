package millstream.oracle;

import static millstream.oracle.Type.INT64;
import static millstream.oracle.Type.STRING;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** What most cases are made of: string keys with string values ("words") or int64 values ("numbers"). */
final class Dsl {
    private Dsl() {}

    static KStream<String, String> words(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(STRING, STRING));
    }

    static KStream<String, Long> numbers(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(STRING, INT64));
    }

    static KTable<String, String> wordTable(StreamsBuilder builder, String topic) {
        return builder.table(topic, Consumed.with(STRING, STRING));
    }

    static KTable<String, String> wordTable(StreamsBuilder builder, String topic, String store) {
        return builder.table(topic, Consumed.with(STRING, STRING), wordStore(store));
    }

    static KTable<String, Long> numberTable(StreamsBuilder builder, String topic) {
        return builder.table(topic, Consumed.with(STRING, INT64));
    }

    static KTable<String, Long> numberTable(StreamsBuilder builder, String topic, String store) {
        return builder.table(topic, Consumed.with(STRING, INT64), numberStore(store));
    }

    static Produced<String, String> asWords() {
        return Produced.with(STRING, STRING);
    }

    static Produced<String, Long> asNumbers() {
        return Produced.with(STRING, INT64);
    }

    static Grouped<String, String> byWord() {
        return Grouped.with(STRING, STRING);
    }

    static Grouped<String, Long> byNumber() {
        return Grouped.with(STRING, INT64);
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> wordStore(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(STRING).withValueSerde(STRING);
    }

    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> numberStore(String name) {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(STRING).withValueSerde(INT64);
    }
}
