import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/**
 * Runs YARN's ResourceManager and a NodeManager on each of some addresses in one JVM, until standard input ends.
 *
 * Arguments: a directory, in which each NodeManager has its own, and the addresses. Once all are started
 * the directory has a `yarn-site.xml` with the ports of the ResourceManager.
 *
 * Compiled by Janino: without lambdas.
 */
public final class YarnCluster {
    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0);
        } catch (Throwable failure) { // the threads of servers would keep the JVM
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        DefaultMetricsSystem.setMiniClusterMode(true); // of several daemons in a JVM
        Configuration configuration = new YarnConfiguration();
        ResourceManager resourceManager = new ResourceManager();
        resourceManager.init(configuration);
        resourceManager.start();
        for (int number = 1; number < arguments.length; number++) {
            NodeManager nodeManager = new NodeManager();
            nodeManager.init(ofNode(configuration, new File(directory, "node-" + number), arguments[number]));
            nodeManager.start();
        }
        File written = new File(directory, "yarn-site.xml.new");
        OutputStream file = new FileOutputStream(written);
        configuration.writeXml(file);
        file.close();
        written.renameTo(new File(directory, "yarn-site.xml"));
        while (System.in.read() >= 0) {
        }
    }

    private static Configuration ofNode(Configuration shared, File directory, String host) {
        Configuration configuration = new YarnConfiguration(shared);
        String[] addresses = {
            YarnConfiguration.NM_ADDRESS, YarnConfiguration.NM_LOCALIZER_ADDRESS,
            YarnConfiguration.NM_WEBAPP_ADDRESS, YarnConfiguration.NM_COLLECTOR_SERVICE_ADDRESS
        };
        for (int number = 0; number < addresses.length; number++) {
            configuration.set(addresses[number], host + ":0");
        }
        configuration.set(YarnConfiguration.NM_LOCAL_DIRS, new File(directory, "local").toString());
        configuration.set(YarnConfiguration.NM_LOG_DIRS, new File(directory, "logs").toString());
        return configuration;
    }
}
