import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The operator of kafka_latency.py in Kafka Streams, exactly once: per key a count in a store, and a draw.
 *
 * <p>Arguments: servers, topic to read, topic to write, folder of the state, milliseconds between commits. A row's value is
 * that of its record, the time of its sending; count and draw are in a header.
 */
public final class KafkaStreamsJob {
  private static final String STORE = "seen";

  private KafkaStreamsJob() {}

  static final class Decide extends ContextualFixedKeyProcessor<byte[], byte[], byte[]> {
    private final Random random = new Random();
    private KeyValueStore<byte[], Long> seen;

    @Override
    public void init(FixedKeyProcessorContext<byte[], byte[]> context) {
      super.init(context);
      seen = context.getStateStore(STORE);
    }

    @Override
    public void process(FixedKeyRecord<byte[], byte[]> record) {
      Long before = seen.get(record.key());
      long now = before == null ? 1 : before + 1;
      seen.put(record.key(), now);
      record.headers().add("decided", (now + " " + random.nextDouble()).getBytes());
      context().forward(record);
    }
  }

  public static void main(String[] given) throws InterruptedException {
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + given[1]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, given[3]);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, given[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArray().getClass());
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArray().getClass());
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.Long()));
    builder.<byte[], byte[]>stream(given[1]).processValues(Decide::new, STORE).to(given[2]);
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.start();
    Thread.currentThread().join();
  }
}
