package millstream.oracle;

import java.util.HexFormat;
import java.util.UUID;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** A serde under the name that the fixtures and the Python side use for it. */
final class Type<T> implements Serde<T> {
    static final Type<String> STRING = new Type<>("string", Serdes.String());
    static final Type<Integer> INT32 = new Type<>("int32", Serdes.Integer());
    static final Type<Long> INT64 = new Type<>("int64", Serdes.Long());
    static final Type<Double> DOUBLE = new Type<>("double", Serdes.Double());
    static final Type<Boolean> BOOLEAN = new Type<>("boolean", Serdes.Boolean());
    static final Type<UUID> UUIDS = new Type<>("uuid", Serdes.UUID());
    static final Type<byte[]> BYTES = new Type<>("bytes", Serdes.ByteArray());

    private final String name;
    private final Serde<T> serde;

    private Type(String name, Serde<T> serde) {
        this.name = name;
        this.serde = serde;
    }

    /** Keys of time windows and of sliding windows: all of one size. */
    static <K> Type<Windowed<K>> timeWindowed(Type<K> key, long sizeMs) {
        return new Type<>("time_windowed(" + key.name + ',' + sizeMs + ')',
            new WindowedSerdes.TimeWindowedSerde<>(key.serde, sizeMs));
    }

    /** Keys of sessions. */
    static <K> Type<Windowed<K>> sessionWindowed(Type<K> key) {
        return new Type<>("session_windowed(" + key.name + ')', new WindowedSerdes.SessionWindowedSerde<>(key.serde));
    }

    String name() {
        return name;
    }

    @Override
    public Serializer<T> serializer() {
        return serde.serializer();
    }

    @Override
    public Deserializer<T> deserializer() {
        return serde.deserializer();
    }

    /** A value as a JSON literal; bytes are hexadecimal, a UUID is its text, a windowed key is an object. */
    static String literal(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Windowed<?> windowed) {
            return "{\"key\": " + literal(windowed.key()) + ", \"start\": " + windowed.window().start()
                + ", \"end\": " + windowed.window().end() + '}';
        }
        return quoted(value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : value.toString());
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
