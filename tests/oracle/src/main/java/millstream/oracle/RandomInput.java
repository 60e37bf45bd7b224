package millstream.oracle;

import java.util.List;
import java.util.Random;

/**
 * Records from a seed, to all inputs of a case: time goes on by small steps or stands still, and a quarter of the
 * records come from some time before.
 */
record RandomInput(long seed, int records, int step, int back, int nullKeyPercent, int nullValuePercent) {
    private static final List<String> KEYS = List.of("a", "a", "a", "b", "b", "c");
    private static final int OUT_OF_ORDER_PERCENT = 25;

    /** Time goes on by at most `step` with a record, and back by at most `back`; a few keys and values are null. */
    static RandomInput of(long seed, int records, int step, int back) {
        return new RandomInput(seed, records, step, back, 4, 6);
    }

    RandomInput withoutNulls() {
        return new RandomInput(seed, records, step, back, 0, 0);
    }

    RandomInput withoutNullKeys() {
        return new RandomInput(seed, records, step, back, 0, nullValuePercent);
    }

    RandomInput withNullValues(int percent) {
        return new RandomInput(seed, records, step, back, nullKeyPercent, percent);
    }

    Case pipe(Case test) {
        Random random = new Random(seed);
        List<Case.Topic> topics = List.copyOf(test.inputs.values());
        long time = random.nextInt(step + 1);
        for (int i = 0; i < records; i++) {
            time += random.nextInt(step + 1);
            boolean outOfOrder = chance(random, OUT_OF_ORDER_PERCENT);
            long timestamp = outOfOrder ? Math.max(0, time - random.nextInt(back + 1)) : time;
            Case.Topic topic = topics.get(random.nextInt(topics.size()));
            String key = KEYS.get(random.nextInt(KEYS.size()));
            Object value = value(topic.value(), random.nextInt(9) + 1);
            boolean nullKey = chance(random, nullKeyPercent);
            boolean nullValue = chance(random, nullValuePercent);
            test.pipe(topic.name(), nullKey ? null : key, nullValue ? null : value, timestamp);
        }
        return test;
    }

    private static Object value(Type<?> type, int number) {
        if (type == Type.INT64) {
            return (long) number;
        }
        return "w" + number;
    }

    private static boolean chance(Random random, int percent) {
        return random.nextInt(100) < percent;
    }
}
