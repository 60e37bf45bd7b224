package millstream.oracle;

import java.util.function.Consumer;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;

/** Processors from lambdas. */
final class Processes {
    interface Body<KIn, VIn, KOut, VOut> {
        void process(ProcessorContext<KOut, VOut> context, Record<KIn, VIn> record);
    }

    interface FixedKeyBody<K, VIn, VOut> {
        void process(FixedKeyProcessorContext<K, VOut> context, FixedKeyRecord<K, VIn> record);
    }

    private Processes() {}

    static <KIn, VIn, KOut, VOut> ProcessorSupplier<KIn, VIn, KOut, VOut> each(Body<KIn, VIn, KOut, VOut> body) {
        return starting(context -> {}, body);
    }

    /** The usual case: words in, words out. */
    static ProcessorSupplier<String, String, String, String> toWords(Body<String, String, String, String> body) {
        return each(body);
    }

    static ProcessorSupplier<String, String, String, Long> toNumbers(Body<String, String, String, Long> body) {
        return each(body);
    }

    /** A processor that does something when it is initialised: schedules a punctuator, mostly. */
    static <KIn, VIn, KOut, VOut> ProcessorSupplier<KIn, VIn, KOut, VOut> starting(
            Consumer<ProcessorContext<KOut, VOut>> start, Body<KIn, VIn, KOut, VOut> body) {
        return () -> new ContextualProcessor<>() {
            @Override
            public void init(ProcessorContext<KOut, VOut> context) {
                super.init(context);
                start.accept(context);
            }

            @Override
            public void process(Record<KIn, VIn> record) {
                body.process(context(), record);
            }
        };
    }

    static <K, VIn, VOut> FixedKeyProcessorSupplier<K, VIn, VOut> eachValue(FixedKeyBody<K, VIn, VOut> body) {
        return () -> new ContextualFixedKeyProcessor<>() {
            @Override
            public void process(FixedKeyRecord<K, VIn> record) {
                body.process(context(), record);
            }
        };
    }

    static FixedKeyProcessorSupplier<String, String, String> valuesToWords(FixedKeyBody<String, String, String> body) {
        return eachValue(body);
    }
}
