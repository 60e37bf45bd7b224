package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/** A processor that keeps a number for each key, and forwards what was there and what is there now. */
final class Remembering {
    private static final long MODULUS = 9973;

    private Remembering() {}

    private static long[] remembered(ProcessingContext context, String name, Object key, Object value) {
        KeyValueStore<String, Long> store = context.getStateStore(name);
        String place = "p" + Math.floorMod(Functions.number(key), 5);
        long before = Functions.number(store.get(place));
        long now = Math.floorMod(before * 3 + Functions.number(value) + 1, MODULUS);
        store.put(place, now % 4 == 0 ? null : now);
        return new long[] {before, now};
    }

    static final class AnyKey extends ContextualProcessor<Object, Object, Object, Object> {
        private final String store;
        private final JsonNode every;

        /** Tells what is in the store every so many milliseconds of the wall clock, or never. */
        AnyKey(String store, JsonNode every) {
            this.store = store;
            this.every = every;
        }

        @Override
        public void init(ProcessorContext<Object, Object> context) {
            super.init(context);
            if (!every.isNull()) {
                context.schedule(Duration.ofMillis(every.asLong()), PunctuationType.WALL_CLOCK_TIME, this::tell);
            }
        }

        private void tell(long now) {
            KeyValueStore<String, Long> entries = context().getStateStore(store);
            try (KeyValueIterator<String, Long> all = entries.all()) {
                all.forEachRemaining(entry -> context().forward(new Record<>(entry.key, entry.value, now)));
            }
        }

        @Override
        public void process(Record<Object, Object> record) {
            long[] numbers = remembered(context(), store, record.key(), record.value());
            context().forward(record.withValue(numbers[1]));
            if (numbers[1] % 3 == 0) {
                context().forward(record.withKey("k" + numbers[1] % 4).withValue(numbers[0]));
            }
        }
    }

    static final class FixedKey extends ContextualFixedKeyProcessor<Object, Object, Object> {
        private final String store;

        FixedKey(String store) {
            this.store = store;
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            long[] numbers = remembered(context(), store, record.key(), record.value());
            context().forward(record.withValue(numbers[1]));
            if (numbers[1] % 3 == 0) {
                context().forward(record.withValue(numbers[0]));
            }
        }
    }
}
