package millstream.oracle;

import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;

/** A topic extractor with a name of its own, because the description of a topology spells it out. */
record Route<K, V>(String name, TopicNameExtractor<K, V> choice) implements TopicNameExtractor<K, V> {
    @Override
    public String extract(K key, V value, RecordContext context) {
        return choice.extract(key, value, context);
    }

    @Override
    public String toString() {
        return name;
    }
}
