import static io.trino.testing.TestingSession.testSessionBuilder;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.trino.Session;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.testing.DistributedQueryRunner;
import io.trino.testing.MaterializedRow;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Trino over a REST catalog: `java TrinoServer.java URI` answers each query, a line, with JSON. */
public class TrinoServer {
  public static void main(String[] given) throws Exception {
    // what is printed in the usual way becomes lines of Trino's log
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    Session session = testSessionBuilder().setCatalog("lake").setSchema("shop").build();
    try (DistributedQueryRunner trino =
        DistributedQueryRunner.builder(session).setWorkerCount(0).build()) {
      trino.installPlugin(new IcebergPlugin());
      trino.createCatalog(
          "lake",
          "iceberg",
          Map.of(
              "iceberg.catalog.type", "rest",
              "iceberg.rest-catalog.uri", given[0],
              "fs.native-local.enabled", "true",
              "local.location", "/"));
      ObjectMapper json = new ObjectMapper();
      BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
      out.println("up");
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        List<List<String>> found = new ArrayList<>();
        for (MaterializedRow row : trino.execute(line).getMaterializedRows()) {
          List<String> texts = new ArrayList<>();
          for (Object value : row.getFields()) {
            texts.add(value == null ? null : value.toString());
          }
          found.add(texts);
        }
        out.println(json.writeValueAsString(found));
      }
    }
  }
}
