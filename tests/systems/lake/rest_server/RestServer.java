import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** A REST catalog in a folder: `java RestServer.java FOLDER PORT` says "up" once it answers. */
public class RestServer {
  public static void main(String[] given) throws Exception {
    Map<String, String> properties =
        Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri", "jdbc:sqlite:" + given[0] + "/rest.db",
            "jdbc.schema-version", "V1",
            "warehouse", given[0] + "/warehouse",
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO");
    Catalog catalog = CatalogUtil.buildIcebergCatalog("lake", properties, new Configuration());
    ServletContextHandler handler = new ServletContextHandler();
    RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    handler.addServlet(new ServletHolder(servlet), "/*");
    Server server = new Server(Integer.parseInt(given[1]));
    server.setHandler(handler);
    server.start();
    System.out.println("up");
    server.join();
  }
}
