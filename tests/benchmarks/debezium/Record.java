// Debezium's engine reads a MariaDB, first its tables and then its binlog, and each message of it
// becomes a line of a recording. It ends with a row of the table `ending`.
// Arguments: port, file to write, folder for the offsets, and the connector's settings as key=value.
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;

public class Record {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("name", "record");
        settings.put("topic.prefix", "dbz");
        settings.put("connector.class", "io.debezium.connector.mariadb.MariaDbConnector");
        settings.put("database.hostname", "127.0.0.1");
        settings.put("database.port", arguments[0]);
        settings.put("database.user", "root");
        settings.put("database.password", "");
        settings.put("database.server.id", "6003");
        settings.put("database.protocol", "jdbc:mariadb");
        settings.put("database.ssl.mode", "disable");
        settings.put("database.include.list", "shop");
        settings.put("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.put("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        settings.put("offset.storage.file.filename", arguments[2] + "/offsets");
        settings.put("errors.max.retries", "0");
        settings.put("heartbeat.interval.ms", "500");
        for (int at = 3; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        PrintWriter out = new PrintWriter(arguments[1], StandardCharsets.UTF_8);
        HashMap<String, Integer> offsets = new HashMap<>();
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
                        String topic = each.destination();
                        int offset = offsets.merge(topic, 1, Integer::sum) - 1;
                        out.printf(
                            "{\"topic\":\"%s\",\"partition\":0,\"offset\":%d,\"key_b64\":%s,"
                                + "\"value_b64\":%s,\"headers\":[],\"note\":\"\"}%n",
                            topic, offset, encoded(each.key()), encoded(each.value()));
                        out.flush();
                        committer.markProcessed(each);
                        if (topic.endsWith(".ending")) {
                            done.countDown();
                        }
                    }
                    committer.markBatchFinished();
                })
                .build();
        Executors.newSingleThreadExecutor().execute(engine);
        done.await();
        out.close();
        System.exit(0);
    }

    private static String encoded(String text) {
        if (text == null) {
            return "null";
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return "\"" + Base64.getEncoder().encodeToString(bytes) + "\"";
    }
}
