import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words with Kafka Streams, exactly once, and tells every count that a word has had.
 *
 * Arguments: bootstrap servers, source, target, application id, state directory. Ends when its standard input
 * does.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[3]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", "3");
        settings.put("num.standby.replicas", "1");
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());
        // Else only some counts would be told, and a word that was counted twice might not be seen.
        settings.put("statestore.cache.max.bytes", "0");
        // Who dies is missed after seconds, not 45 of them.
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("consumer.auto.offset.reset", "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        KStream lines = builder.stream(arguments[1]);
        KStream words = lines.flatMapValues(new ValueMapper() {
            public Object apply(Object line) {
                return Arrays.asList(((String) line).split(" "));
            }
        });
        KTable counts = words.groupBy(new KeyValueMapper() {
            public Object apply(Object key, Object word) {
                return word;
            }
        }).count(Materialized.as(Stores.inMemoryKeyValueStore("counts")));
        counts.toStream().to(arguments[2], Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener(new KafkaStreams.StateListener() {
            public void onChange(KafkaStreams.State now, KafkaStreams.State before) {
                if (now == KafkaStreams.State.ERROR) {
                    Runtime.getRuntime().halt(1);
                }
            }
        });
        streams.start();
        while (System.in.read() >= 0) {
        }
        streams.close(Duration.ofSeconds(10L));
    }
}
