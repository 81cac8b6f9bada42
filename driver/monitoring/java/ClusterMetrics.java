package sparklog.node.metrics;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.MetricsSystem;
import org.apache.spark.metrics.source.Source;
import org.apache.spark.ui.SparkUI;

/**
 * The cluster's figures as a source of Spark's metrics system, which every sink reads, and as a page of the UI for
 * Prometheus. Both are filled by the driver's Python, through `put`; Java calls nothing there.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class ClusterMetrics extends HttpServlet implements Source {
    private static final String PATH = "/log/metrics";

    private final ConcurrentHashMap values = new ConcurrentHashMap();
    private final MetricRegistry registry = new MetricRegistry();
    private final SparkUI ui;
    private volatile byte[] exposition = new byte[0];

    /** `ui` is null if there is none. */
    public ClusterMetrics(SparkUI ui) {
        this.ui = ui;
    }

    public String sourceName() {
        return "sparklog";
    }

    public MetricRegistry metricRegistry() {
        return registry;
    }

    public void attach() throws Throwable {
        call("registerSource");
        if (ui != null) {
            ui.attachHandler(PATH, this, "/");
        }
    }

    public void detach() throws Throwable {
        call("removeSource");
        if (ui != null) {
            ui.detachHandler(PATH);
        }
    }

    /** Takes lines of a name, a tab and a number; what is in none of them is no more. And the whole for Prometheus. */
    public void put(String lines, String exposition) {
        this.exposition = exposition.getBytes(StandardCharsets.UTF_8);
        Set gone = new HashSet(values.keySet());
        int start = 0;
        while (start < lines.length()) {
            int tab = lines.indexOf('\t', start);
            int end = lines.indexOf('\n', tab);
            final String name = lines.substring(start, tab);
            Double value = Double.valueOf(lines.substring(tab + 1, end));
            start = end + 1;
            gone.remove(name);
            if (values.put(name, value) == null) {
                registry.register(name, new Gauge() {
                    public Object getValue() {
                        Object value = values.get(name);
                        return value == null ? Double.valueOf(Double.NaN) : value;
                    }
                });
            }
        }
        for (Iterator names = gone.iterator(); names.hasNext();) {
            String name = (String) names.next();
            registry.remove(name);
            values.remove(name);
        }
    }

    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        byte[] content = exposition;
        response.setContentType("text/plain; version=0.0.4; charset=utf-8");
        response.setContentLength(content.length);
        response.getOutputStream().write(content);
    }

    /** By a handle: looking at all methods of these classes takes libraries that need not be there. */
    private void call(String method) throws Throwable {
        MethodHandles.Lookup lookup = MethodHandles.publicLookup();
        MethodHandle get = lookup.findStatic(SparkEnv.class, "get", MethodType.methodType(SparkEnv.class));
        MethodHandle system =
            lookup.findVirtual(SparkEnv.class, "metricsSystem", MethodType.methodType(MetricsSystem.class));
        MethodHandle handle =
            lookup.findVirtual(MetricsSystem.class, method, MethodType.methodType(void.class, Source.class));
        Object[] none = new Object[0];
        Object environment = get.invokeWithArguments(none);
        Object metricsSystem = system.invokeWithArguments(new Object[] {environment});
        handle.invokeWithArguments(new Object[] {metricsSystem, this});
    }
}
