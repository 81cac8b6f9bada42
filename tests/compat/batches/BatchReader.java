import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/** Reads batches as Kafka's consumer does, a line each; see comparison.py for the lines. */
public class BatchReader {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = words[0].equals("batch")
                    ? read(Base64.getDecoder().decode(words[1])) : consume(words[1], words[2]);
            } catch (Throwable error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String read(byte[] bytes) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        long count = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            CloseableIterator<Record> iterator = batch.streamingIterator(BufferSupplier.create());
            while (iterator.hasNext()) {
                Record record = iterator.next();
                record.ensureValid();
                record.headers();
                for (int i = 0; i < record.headers().length; i++) record.headers()[i].key();
                count++;
            }
            iterator.close();
        }
        return "read " + count;
    }

    private static String consume(String servers, String topic) {
        Map<String, Object> settings = new HashMap<String, Object>();
        settings.put("bootstrap.servers", servers);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<byte[], byte[]>(settings);
        try {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long count = 0;
            long deadline = System.currentTimeMillis() + 60000;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > deadline)
                    return "error at " + consumer.position(partition) + " of " + end;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) count++;
            }
            return "read " + count;
        } finally {
            consumer.close();
        }
    }
}
