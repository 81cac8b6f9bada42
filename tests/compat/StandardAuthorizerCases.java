import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/** Answers questions, a line each, by Kafka's StandardAuthorizer; see test_authorizer.py for the lines. */
public class StandardAuthorizerCases {
    private record Context(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        public String listenerName() { return "TEST"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "test"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        StandardAuthorizer authorizer = null;
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = Arrays.stream(line.split("\t", -1))
                .map(word -> URLDecoder.decode(word, StandardCharsets.UTF_8)).toArray(String[]::new);
            switch (words[0]) {
                case "acl" -> acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(words[1])), words[3],
                    PatternType.fromCode(Byte.parseByte(words[2])), words[4], words[5],
                    AclOperation.fromCode(Byte.parseByte(words[6])),
                    AclPermissionType.fromCode(Byte.parseByte(words[7]))));
                case "authorizer" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        "node.id", "1", "super.users", words[1], "allow.everyone.if.no.acl.found", words[2]));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new HashMap<>()));
                    authorizer.loadSnapshot(acls);
                    authorizer.completeInitialLoad();
                    acls = new HashMap<>();
                }
                case "ask" -> out.println(asked(authorizer, words));
                case "any" -> out.println(askedForAny(authorizer, words));
                case "filter" -> {
                    int count = 0;
                    for (var ignored : authorizer.acls(filter(words))) count++;
                    out.println(count);
                }
                case "end" -> out.flush();
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static String asked(StandardAuthorizer authorizer, String[] words) throws Exception {
        ResourcePattern resource = new ResourcePattern(
            ResourceType.fromCode(Byte.parseByte(words[5])), words[6], PatternType.LITERAL);
        Action action = new Action(AclOperation.fromCode(Byte.parseByte(words[4])), resource, 1, false, false);
        try {
            return authorizer.authorize(context(words), List.of(action)).get(0).name();
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    private static String askedForAny(StandardAuthorizer authorizer, String[] words) throws Exception {
        try {
            return authorizer.authorizeByResourceType(context(words),
                AclOperation.fromCode(Byte.parseByte(words[4])),
                ResourceType.fromCode(Byte.parseByte(words[5]))).name();
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    private static Context context(String[] words) throws Exception {
        return new Context(new KafkaPrincipal(words[1], words[2]), InetAddress.getByName(words[3]));
    }

    private static AclBindingFilter filter(String[] words) {
        return new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.fromCode(Byte.parseByte(words[1])),
                given(words[3]), PatternType.fromCode(Byte.parseByte(words[2]))),
            new AccessControlEntryFilter(given(words[4]), given(words[5]),
                AclOperation.fromCode(Byte.parseByte(words[6])),
                AclPermissionType.fromCode(Byte.parseByte(words[7]))));
    }

    private static String given(String word) {
        return word.isEmpty() ? null : word;
    }
}
