import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The same indices as Runlog's, kept with Kafka Streams: calls by run and fingerprint, the pending calls of a run, and the
 * checkpoints of a run with their message lists. `make bench` measures it beside `runlog serve`.
 *
 * <pre>java -cp 'JARS/*:CLASSES' StreamsIndex BROKERS TOPIC APPLICATION FOLDER GUARANTEE CHANGELOG SCHEMAS RECORDS QUESTIONS</pre>
 *
 * GUARANTEE is at_least_once or exactly_once_v2, CHANGELOG true or false. A record is Avro's single-object encoding of one of the
 * SCHEMAS, files with colons between them.
 * It prints a line for each event, with which the one who started it reads clocks:
 *
 * <pre>
 * restoring          the first state store begins to be restored; only where RECORDS is 0
 * running COUNT      every thread has its share of the partitions, and no state is left to restore; COUNT records are applied
 * applied            RECORDS records are applied: all of the topic
 * answer ...         a line for each question of the file QUESTIONS, in their order
 * ended              everything is committed and closed
 * </pre>
 *
 * With RECORDS 0 it answers as soon as it runs.
 */
public final class StreamsIndex {
    private static final int HEADER_BYTES = 10;
    private static final int THREADS = Runtime.getRuntime().availableProcessors();
    private static final String CALLS = "calls";
    private static final String PENDING = "pending";
    private static final String CHECKPOINTS = "checkpoints";

    private final AtomicLong applied = new AtomicLong();
    private final CountDownLatch all = new CountDownLatch(1);
    private final LinkedBlockingQueue<KafkaStreams.State> states = new LinkedBlockingQueue<>();
    /** By the fingerprint in the header of a record. */
    private final Map<Long, Schema> schemas = new HashMap<>();

    private final long records;

    private StreamsIndex(String files, long records) throws IOException {
        this.records = records;
        for (String file : files.split(":")) {
            Schema schema = new Schema.Parser().parse(new File(file));
            schemas.put(SchemaNormalization.parsingFingerprint64(schema), schema);
        }
    }

    public static void main(String[] args) throws Exception {
        String brokers = args[0], topic = args[1], application = args[2], folder = args[3], guarantee = args[4];
        boolean changelog = Boolean.parseBoolean(args[5]);
        var index = new StreamsIndex(args[6], Long.parseLong(args[7]));
        var properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, THREADS);
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        try {
            index.run(new KafkaStreams(index.topology(topic, changelog), properties), Files.readAllLines(Path.of(args[8])));
        } catch (Throwable failure) {
            // The threads of Streams would keep the process.
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private Topology topology(String topic, boolean changelog) {
        var topology = new Topology();
        var bytes = Serdes.ByteArray().deserializer();
        topology.addSource("journal", bytes, bytes, topic);
        topology.addProcessor("project", () -> new Project(), "journal");
        for (String name : List.of(CALLS, PENDING, CHECKPOINTS)) {
            StoreBuilder<KeyValueStore<byte[], byte[]>> store = Stores.keyValueStoreBuilder(
                    Stores.persistentKeyValueStore(name), Serdes.ByteArray(), Serdes.ByteArray());
            // With a record cache, as the DSL has it: of a row that changes twice between commits the changelog gets one.
            store = store.withCachingEnabled();
            topology.addStateStore(
                    changelog ? store.withLoggingEnabled(Map.of()) : store.withLoggingDisabled(), "project");
        }
        return topology;
    }

    private void run(KafkaStreams streams, List<String> questions) throws Exception {
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> states.add(now));
        if (records == 0) {
            streams.setGlobalStateRestoreListener(new SaysRestoring());
        }
        streams.start();
        awaitShares(streams);
        System.out.println("running " + applied.get());
        if (records > 0) {
            all.await();
            System.out.println("applied");
        }
        var answers = new Answers(streams);
        for (String question : questions) {
            System.out.println("answer " + answers.to(question.split("\t")));
        }
        // Commits, which flushes the stores and waits for the changelogs.
        if (!streams.close(Duration.ofMinutes(2))) {
            throw new IllegalStateException("the streams were not closed in time");
        }
        System.out.println("ended");
    }

    /** The threads join one after the other, and partitions move between them. */
    private void awaitShares(KafkaStreams streams) throws InterruptedException {
        while (true) {
            KafkaStreams.State state = states.poll(2, TimeUnit.MINUTES);
            if (state == null || state.hasCompletedShutdown()) {
                throw new IllegalStateException("the streams do not run: " + state);
            }
            if (state == KafkaStreams.State.RUNNING
                    && streams.metadataForLocalThreads().stream().noneMatch(thread -> thread.activeTasks().isEmpty())) {
                return;
            }
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }

    /** A run and what it names, with a byte between them that neither has. */
    private static byte[] key(String run, String name) {
        return utf8(run + '\0' + name);
    }

    private static String optional(Object field) {
        return field == null ? "" : field.toString();
    }

    /** Texts, each behind its length. */
    private static byte[] row(List<String> texts) {
        List<byte[]> parts = texts.stream().map(StreamsIndex::utf8).toList();
        ByteBuffer row = ByteBuffer.allocate(parts.stream().mapToInt(part -> 4 + part.length).sum());
        parts.forEach(part -> row.putInt(part.length).put(part));
        return row.array();
    }

    private static List<String> texts(byte[] row) {
        List<String> texts = new ArrayList<>();
        for (ByteBuffer rest = ByteBuffer.wrap(row); rest.hasRemaining(); ) {
            byte[] part = new byte[rest.getInt()];
            rest.get(part);
            texts.add(text(part));
        }
        return texts;
    }

    /** Writes the rows of a record. */
    private final class Project implements Processor<byte[], byte[], Void, Void> {
        private final Map<Long, GenericDatumReader<GenericRecord>> readers = new HashMap<>();
        private KeyValueStore<byte[], byte[]> calls;
        private KeyValueStore<byte[], byte[]> pending;
        private KeyValueStore<byte[], byte[]> checkpoints;
        private BinaryDecoder decoder;

        Project() {
            // Avro's own: where threads share one, they deadlock while they build their readers (FastReaderBuilder, Avro 1.12).
            var data = new GenericData();
            schemas.forEach((fingerprint, schema) -> readers.put(fingerprint, new GenericDatumReader<>(schema, schema, data)));
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            calls = context.getStateStore(CALLS);
            pending = context.getStateStore(PENDING);
            checkpoints = context.getStateStore(CHECKPOINTS);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            byte[] bytes = record.value();
            // C3 01, then the fingerprint of the schema.
            long fingerprint = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getLong(2);
            decoder = DecoderFactory.get().binaryDecoder(bytes, HEADER_BYTES, bytes.length - HEADER_BYTES, decoder);
            try {
                GenericRecord journaled = readers.get(fingerprint).read(null, decoder);
                project(journaled, (GenericRecord) journaled.get("payload"));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
            if (applied.incrementAndGet() == records) {
                all.countDown();
            }
        }

        private void project(GenericRecord record, GenericRecord payload) {
            String run = record.get("run_id").toString();
            switch (payload.getSchema().getName()) {
                case "ToolCallRequested" -> {
                    String id = record.get("record_id").toString(), fingerprint = payload.get("fingerprint").toString();
                    String tool = payload.get("tool_name").toString(), arguments = optional(payload.get("arguments"));
                    calls.put(key(run, fingerprint), row(List.of("pending", id, tool, arguments)));
                    pending.put(key(run, id), row(List.of(fingerprint, tool, arguments)));
                }
                case "ToolCallCompleted" -> {
                    String id = payload.get("request_record_id").toString();
                    byte[] request = pending.delete(key(run, id));
                    if (request == null) {
                        return; // The call has ended: this result is late.
                    }
                    List<String> of = texts(request);
                    String result = optional(payload.get("result"));
                    calls.put(key(run, of.get(0)), row(List.of("completed", id, of.get(1), of.get(2), result)));
                }
                case "LoopCheckpoint" -> {
                    String id = payload.get("checkpoint_id").toString();
                    List<String> row = new ArrayList<>();
                    row.add(optional(payload.get("base")));
                    row.add(payload.get("checkpoint_seq").toString());
                    row.add(payload.get("covers_journal_seq").toString());
                    ((List<?>) payload.get("messages")).forEach(message -> row.add(message.toString()));
                    checkpoints.put(key(run, id), row(row));
                    checkpoints.put(key(run, ""), utf8(id));
                }
                default -> { }
            }
        }
    }

    /** Says once that state is restored. */
    private static final class SaysRestoring implements StateRestoreListener {
        private boolean said;

        @Override
        public synchronized void onRestoreStart(TopicPartition changelog, String store, long from, long to) {
            if (!said && to > from) {
                said = true;
                System.out.println("restoring");
            }
        }

        @Override
        public void onBatchRestored(TopicPartition changelog, String store, long end, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition changelog, String store, long total) { }
    }

    /** Answers from the stores of all partitions. */
    private static final class Answers {
        private final ReadOnlyKeyValueStore<byte[], byte[]> calls;
        private final ReadOnlyKeyValueStore<byte[], byte[]> pending;
        private final ReadOnlyKeyValueStore<byte[], byte[]> checkpoints;

        Answers(KafkaStreams streams) {
            calls = store(streams, CALLS);
            pending = store(streams, PENDING);
            checkpoints = store(streams, CHECKPOINTS);
        }

        private static ReadOnlyKeyValueStore<byte[], byte[]> store(KafkaStreams streams, String name) {
            return streams.store(StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.keyValueStore()));
        }

        /** Texts that are JSON already, with tabs between them. `question` is the index, the run, and a fingerprint. */
        String to(String[] question) {
            String run = question[1];
            return switch (question[0]) {
                case CALLS -> {
                    byte[] row = calls.get(key(run, question[2]));
                    if (row == null) {
                        yield "unknown";
                    }
                    List<String> call = texts(row);
                    call.remove(1);
                    yield String.join("\t", call);
                }
                case PENDING -> {
                    List<String> ids = new ArrayList<>();
                    try (KeyValueIterator<byte[], byte[]> rows =
                            pending.prefixScan(key(run, ""), new ByteArraySerializer())) {
                        rows.forEachRemaining(row -> ids.add(text(row.key).substring(run.length() + 1)));
                    }
                    Collections.sort(ids);
                    yield String.join("\t", ids);
                }
                case CHECKPOINTS -> {
                    byte[] latest = checkpoints.get(key(run, ""));
                    yield latest == null ? "unknown" : checkpoint(run, text(latest));
                }
                default -> throw new IllegalArgumentException(Arrays.toString(question));
            };
        }

        /** Its id, both of its numbers, and its whole message list. */
        private String checkpoint(String run, String id) {
            List<List<String>> lists = new ArrayList<>();
            String head = null;
            for (String at = id; !at.isEmpty(); ) {
                List<String> row = texts(checkpoints.get(key(run, at)));
                if (head == null) {
                    head = String.join("\t", id, row.get(1), row.get(2));
                }
                lists.add(row.subList(3, row.size()));
                at = row.get(0);
            }
            Collections.reverse(lists);
            String messages = String.join("\t", lists.stream().flatMap(List::stream).toList());
            return messages.isEmpty() ? head : head + '\t' + messages;
        }
    }
}
