package millstream.oracle;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;

/** Writes one golden file per case into the directory that it is given, and removes files of cases that are gone. */
public final class Oracle {
    private static final List<Case> CASES = Stream.of(
            StatelessCases.cases(),
            SplittingCases.cases(),
            SourceCases.cases(),
            SinkCases.cases(),
            GroupingCases.cases(),
            TableCases.cases(),
            GroupedTableCases.cases(),
            CogroupCases.cases(),
            RepartitionCases.cases(),
            OptimizationCases.cases(),
            ProcessorCases.cases(),
            PunctuatorCases.cases(),
            HeaderCases.cases(),
            StoreCases.cases(),
            ProcessorApiCases.cases(),
            ProgramCases.cases(),
            OddCases.cases(),
            WindowCases.cases(),
            SlidingCases.cases(),
            SessionCases.cases(),
            EmitCases.cases(),
            SuppressCases.cases(),
            WindowedCogroupCases.cases(),
            VersionedTableCases.cases(),
            TimestampCases.cases(),
            StreamStreamJoinCases.cases(),
            SelfJoinCases.cases(),
            StreamTableJoinCases.cases(),
            TableTableJoinCases.cases(),
            ForeignKeyJoinCases.cases(),
            GlobalTableJoinCases.cases(),
            JoinProgramCases.cases())
        .flatMap(List::stream)
        .toList();

    private Oracle() {}

    public static void main(String[] arguments) throws IOException {
        Path golden = Path.of(arguments[0]).normalize();
        Path states = Files.createTempDirectory("oracle");
        Set<Path> written = new HashSet<>();
        for (Case test : CASES) {
            Path file = golden.resolve(test.name + ".txt");
            if (!written.add(file)) {
                throw new IllegalStateException("two cases are called " + test.name);
            }
            Files.writeString(file, Player.play(test, states));
        }
        removeOthers(golden, written);
        removeTree(states);
        System.out.println(written.size() + " cases in " + golden);
    }

    private static void removeOthers(Path golden, Set<Path> written) throws IOException {
        try (Stream<Path> files = Files.list(golden)) {
            for (Path file : files.filter(path -> path.toString().endsWith(".txt")).toList()) {
                if (!written.contains(file)) {
                    Files.delete(file);
                }
            }
        }
    }

    private static void removeTree(Path root) throws IOException {
        try (Stream<Path> paths = Files.walk(root)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
