package millstream.oracle.fuzz;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/** Reads a request per line, plays it on Kafka's own test driver, and answers in a line. Ends with its input. */
public final class Fuzz {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Fuzz() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(MAPPER.writeValueAsString(answer(line)));
        }
    }

    private static ObjectNode answer(String line) throws IOException {
        Path states = Files.createTempDirectory("oracle-fuzz");
        try {
            return Play.play(MAPPER.readTree(line), states);
        } catch (RuntimeException | IOException | StackOverflowError error) {
            return MAPPER.createObjectNode().put("crash", error.toString());
        } finally {
            removeTree(states);
        }
    }

    private static void removeTree(Path root) throws IOException {
        if (!Files.exists(root)) {
            return; // the driver removes what it has made, and sometimes all of it
        }
        try (Stream<Path> paths = Files.walk(root)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(path);
            }
        }
    }
}
