package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Types by name: "string", "int64", and for keys "time:SIZE" and "session", which are windowed strings. */
final class Types {
    private Types() {}

    @SuppressWarnings("unchecked")
    static Serde<Object> serde(JsonNode type) {
        return (Serde<Object>) (Serde<?>) named(type.asText());
    }

    private static Serde<?> named(String type) {
        if (type.startsWith("time:")) {
            return new WindowedSerdes.TimeWindowedSerde<>(Serdes.String(), Long.parseLong(type.substring(5)));
        }
        return switch (type) {
            case "string" -> Serdes.String();
            case "int64" -> Serdes.Long();
            case "session" -> new WindowedSerdes.SessionWindowedSerde<>(Serdes.String());
            default -> throw new IllegalArgumentException("no type " + type);
        };
    }

    static Object value(JsonNode json) {
        return json.isNull() ? null : json.isTextual() ? json.asText() : (Object) json.asLong();
    }

    static JsonNode json(Object any) {
        JsonNodeFactory factory = JsonNodeFactory.instance;
        if (any == null) {
            return factory.nullNode();
        }
        if (any instanceof Windowed<?> windowed) {
            ArrayNode array = factory.arrayNode();
            return array.add(json(windowed.key())).add(windowed.window().start()).add(windowed.window().end());
        }
        return any instanceof Long number ? factory.numberNode(number) : factory.textNode(any.toString());
    }
}
