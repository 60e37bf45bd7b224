package millstream.oracle.fuzz;

import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.ProcessingContext;
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

        AnyKey(String store) {
            this.store = store;
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
