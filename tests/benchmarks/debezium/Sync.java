// Debezium's engine reads a table's rows from a MariaDB's binlog and makes JSON of them; nothing
// writes that anywhere.
// Arguments: port, file of the binlog, GTID before the first
// row, rows, folder for the offsets.
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileOutputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;

public class Sync {
    public static void main(String[] arguments) throws Exception {
        long rows = Long.parseLong(arguments[3]);
        Properties settings = new Properties();
        settings.put("name", "bench");
        settings.put("topic.prefix", "bench");
        settings.put("connector.class", "io.debezium.connector.mariadb.MariaDbConnector");
        settings.put("database.hostname", "127.0.0.1");
        settings.put("database.port", arguments[0]);
        settings.put("database.user", "root");
        settings.put("database.password", "");
        settings.put("database.server.id", "6001");
        settings.put("database.protocol", "jdbc:mariadb");
        settings.put("database.ssl.mode", "disable");
        settings.put("database.include.list", "shop");
        settings.put("table.include.list", "shop.orders");
        settings.put("snapshot.mode", "recovery");
        settings.put("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.put("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        settings.put("offset.storage.file.filename", offsets(arguments[4], arguments[1], arguments[2]));
        settings.put("key.converter.schemas.enable", "false");
        settings.put("value.converter.schemas.enable", "false");
        settings.put("errors.max.retries", "0");
        settings.put("max.batch.size", "16384");
        settings.put("max.queue.size", "65536");
        long[] seen = {0, 0};
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine =
            DebeziumEngine.create(Json.class)
                .using(settings)
                .using((good, message, error) -> {
                    System.out.println("ended: " + message + " " + error);
                    done.countDown();
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> each : records) {
                        if (each.value() != null && each.destination().endsWith("orders")) {
                            if (seen[0]++ == 0) {
                                seen[1] = System.currentTimeMillis();
                            }
                        }
                        committer.markProcessed(each);
                    }
                    committer.markBatchFinished();
                    if (seen[0] >= rows) {
                        done.countDown();
                    }
                })
                .build();
        Executors.newSingleThreadExecutor().execute(engine);
        done.await();
        double ended = System.currentTimeMillis() / 1e3;
        System.out.printf(
            "{\"bench\": \"synced\", \"at\": %f, \"rows\": %d, \"begun\": %f, \"ended\": %f}%n",
            ended, seen[0], seen[1] / 1e3, ended);
        System.out.flush();
        Thread.sleep(1000); // for a last sample of what it has used
        System.exit(seen[0] >= rows ? 0 : 1);
    }

    /** A file of offsets, as if the engine had stopped at the beginning of that binlog file. */
    private static String offsets(String folder, String binlog, String gtid)
        throws Exception {
        HashMap<byte[], byte[]> stored = new HashMap<>();
        stored.put(
            "[\"bench\",{\"server\":\"bench\"}]".getBytes(StandardCharsets.UTF_8),
            ("{\"ts_sec\":1,\"file\":\"" + binlog + "\",\"pos\":4,\"gtids\":\"" + gtid
                + "\",\"row\":0,\"server_id\":1}").getBytes(StandardCharsets.UTF_8));
        String path = folder + "/offsets";
        try (ObjectOutputStream file = new ObjectOutputStream(new FileOutputStream(path))) {
            file.writeObject(stored);
        }
        return path;
    }
}
