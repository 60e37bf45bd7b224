package millstream.oracle;

import java.lang.reflect.Field;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Objects;
import java.util.Properties;
import java.util.Queue;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

/** Plays a case on Kafka's test driver and writes down what it shows. */
final class Player {
    private static final String APPLICATION_ID = "oracle";

    private final Case test;
    private final Path stateDirectory;
    private final Fixture fixture;

    private Player(Case test, Path stateDirectory) {
        this.test = test;
        this.stateDirectory = stateDirectory;
        this.fixture = new Fixture(test);
    }

    /** The fixture's text. */
    static String play(Case test, Path stateDirectory) {
        Player player = new Player(test, stateDirectory);
        player.play();
        return player.fixture.toString();
    }

    private void play() {
        Topology topology;
        String description;
        TopologyTestDriver driver;
        try {
            topology = test.topology.get();
            description = topology.describe().toString();
            driver = new TopologyTestDriver(topology, config(), Instant.EPOCH);
        } catch (RuntimeException refusal) {
            fixture.refused(refusal);
            return;
        }
        boolean completed = playScript(driver);
        if (completed) {
            fixture.section("stores");
            // A store that no processor is connected to has a name, but does not exist.
            new TreeMap<>(driver.getAllStateStores()).values().stream()
                .filter(Objects::nonNull).forEach(fixture::store);
        }
        close(driver, completed);
        fixture.topology(description);
    }

    /** Whether the topology survived its whole script. */
    private boolean playScript(TopologyTestDriver driver) {
        fixture.section("script");
        Queue<ProducerRecord<byte[], byte[]>> produced = outputInOrder(driver);
        for (Case.Step step : test.steps) {
            try {
                play(driver, step);
            } catch (RuntimeException error) {
                fixture.error(step, error);
                if (step != test.steps.get(test.steps.size() - 1)) {
                    throw new IllegalStateException(test.name + ": steps after an error", error);
                }
                return false;
            }
            fixture.input(step);
            writeOutputs(produced);
        }
        return true;
    }

    private void play(TopologyTestDriver driver, Case.Step step) {
        if (step instanceof Case.WallClock wallClock) {
            driver.advanceWallClockTime(Duration.ofMillis(wallClock.advanceMs()));
            return;
        }
        Case.Pipe pipe = (Case.Pipe) step;
        Case.Topic topic = test.inputs.get(pipe.topic());
        pipe(driver, topic.name(), topic.key(), topic.value(), pipe);
    }

    @SuppressWarnings("unchecked")
    private static <K, V> void pipe(
            TopologyTestDriver driver, String topic, Type<K> key, Type<V> value, Case.Pipe pipe) {
        // The time comes from the input topic, because a test record takes none that is negative.
        driver.createInputTopic(
                topic, key.serializer(), value.serializer(), Instant.ofEpochMilli(pipe.timestamp()), Duration.ZERO)
            .pipeInput(new TestRecord<>((K) pipe.key(), (V) pipe.value(), pipe.headers()));
    }

    private void writeOutputs(Queue<ProducerRecord<byte[], byte[]>> produced) {
        for (ProducerRecord<byte[], byte[]> record : produced) {
            Case.Topic topic = test.outputs.get(record.topic());
            if (topic != null) {
                fixture.output(topic, record);
            } else if (!isInternal(record.topic()) && !test.inputs.containsKey(record.topic())) {
                throw new IllegalStateException(test.name + " does not declare its output " + record.topic());
            }
        }
        produced.clear();
    }

    private static boolean isInternal(String topic) {
        return topic.startsWith(APPLICATION_ID + "-");
    }

    /**
     * The driver keeps one queue of output per topic, which loses the order across topics; no setting keeps it.
     * So its private map is replaced by one that has a single queue for all topics.
     */
    private static Queue<ProducerRecord<byte[], byte[]>> outputInOrder(TopologyTestDriver driver) {
        Queue<ProducerRecord<byte[], byte[]>> everything = new ArrayDeque<>();
        try {
            Field queues = TopologyTestDriver.class.getDeclaredField("outputRecordsByTopic");
            queues.setAccessible(true);
            queues.set(driver, new SingleQueue(everything));
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
        return everything;
    }

    private static final class SingleQueue extends HashMap<String, Queue<ProducerRecord<byte[], byte[]>>> {
        private static final long serialVersionUID = 1;
        private final transient Queue<ProducerRecord<byte[], byte[]>> queue;

        SingleQueue(Queue<ProducerRecord<byte[], byte[]>> queue) {
            this.queue = queue;
        }

        @Override
        public Queue<ProducerRecord<byte[], byte[]>> computeIfAbsent(
                String topic, Function<? super String, ? extends Queue<ProducerRecord<byte[], byte[]>>> unused) {
            return queue;
        }
    }

    private static void close(TopologyTestDriver driver, boolean completed) {
        try {
            driver.close();
        } catch (RuntimeException error) {
            if (completed) {
                throw error;
            }
        }
    }

    private Properties config() {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION_ID);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:9092");
        config.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory.resolve(test.name).toString());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // Kafka looks for closed windows and for unmatched records of joins once a second. Here: with every record.
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        return config;
    }
}
