package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * The functions that random topologies are made of, as data. `tests/oracle_fuzz/functions.py` is the same in Python.
 *
 * <p>Keys are strings or windowed strings, values are longs or strings; either may be null. Every function is total.
 */
final class Functions {
    private static final long MODULUS = 9973;
    private static final int TAIL = 20;

    private Functions() {}

    /** Anything as a number. */
    static long number(Object any) {
        if (any == null) {
            return 0;
        }
        if (any instanceof Long number) {
            return number;
        }
        if (any instanceof Windowed<?> windowed) {
            return number(windowed.key()) + windowed.window().start() % MODULUS + windowed.window().end() % MODULUS;
        }
        return ((String) any).chars().sum();
    }

    /** A key is kept if this holds. */
    static boolean holds(JsonNode f, Object key, Object value) {
        long sum = number(value) + (f.get("key").asBoolean() ? number(key) : 0);
        return Math.floorMod(sum, f.get("mod").asLong()) < f.get("below").asLong();
    }

    static Object newKey(JsonNode f, Object key, Object value) {
        long sum = number(value) + (f.get("key").asBoolean() ? number(key) % 3 : 0);
        long chosen = Math.floorMod(sum, f.get("mod").asLong());
        return chosen == f.get("null").asLong() ? null : "k" + chosen;
    }

    static Object newValue(JsonNode f, Object key, Object value) {
        long sum = number(value) * f.get("a").asLong() + f.get("b").asLong()
            + (f.get("key").asBoolean() ? number(key) : 0);
        long made = Math.floorMod(sum, MODULUS);
        if (made % 5 == f.get("null").asLong()) {
            return null;
        }
        return isString(f) ? tail(text(value) + '.' + made % 10) : (Object) made;
    }

    static List<Object> several(JsonNode f, Object value) {
        long number = number(value);
        List<Object> made = new ArrayList<>();
        for (long copy = 0; copy < Math.floorMod(number, f.get("mod").asLong()); copy++) {
            made.add(isString(f) ? tail(text(value) + '/' + copy) : (Object) Math.floorMod(number * 3 + copy, MODULUS));
        }
        return made;
    }

    /** A joiner, and with a null key one that has none. */
    static Object joined(JsonNode f, Object key, Object left, Object right) {
        long sum = (left == null ? 7 : number(left)) * f.get("a").asLong()
            + (right == null ? 11 : number(right)) * f.get("b").asLong() + number(key);
        long made = Math.floorMod(sum, MODULUS);
        if (made % 5 == f.get("null").asLong()) {
            return null;
        }
        return isString(f) ? tail(text(left) + '&' + text(right)) : (Object) made;
    }

    /** An aggregator, and with a null key a reducer. */
    static Object fold(JsonNode f, Object key, Object value, Object aggregate) {
        Object made = folded(f, key, value, aggregate);
        return Math.floorMod(number(made), 7) == f.get("null").asLong() ? null : made;
    }

    private static Object folded(JsonNode f, Object key, Object value, Object aggregate) {
        long before = number(aggregate);
        long now = number(value);
        return switch (f.get("kind").asText()) {
            case "concat" -> tail(text(aggregate) + '+' + text(value));
            case "uncat" -> tail(text(aggregate) + '-' + text(value));
            case "sum" -> before + now;
            case "minus" -> before - now;
            case "max" -> Math.max(before, now);
            case "min" -> Math.min(before, now);
            case "last" -> now;
            case "mix" -> Math.floorMod(before * f.get("a").asLong() + now + number(key), MODULUS);
            default -> throw new IllegalArgumentException("no function " + f);
        };
    }

    /** What the aggregation starts with. */
    static Object initial(JsonNode f) {
        JsonNode start = f.get("init");
        return start.isNull() ? null : start.isTextual() ? start.asText() : (Object) start.asLong();
    }

    /** The smaller or larger of two numbers of which there may be only one; or their sum. */
    static Object ofNumbers(String how, Object aggregate, long number) {
        if (aggregate == null) {
            return number;
        }
        long before = (Long) aggregate;
        return switch (how) {
            case "sum" -> before + number;
            case "min" -> Math.min(before, number);
            case "max" -> Math.max(before, number);
            default -> throw new IllegalArgumentException("no aggregation " + how);
        };
    }

    private static boolean isString(JsonNode f) {
        return f.get("type").asText().equals("string");
    }

    private static String text(Object value) {
        return value == null ? "~" : value.toString();
    }

    private static String tail(String text) {
        return text.substring(Math.max(0, text.length() - TAIL));
    }
}
