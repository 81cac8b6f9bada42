import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs programs of Kafka's one after the other, as `tests/compat/kafka_jvm.py` asks on standard input.
 *
 * A request is a number of texts: what the program reads, its main class and its arguments. An answer is its
 * status, and what it wrote to both its outputs. A text is its length and its bytes in UTF-8.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class KafkaPrograms {
    /** Ends a program where it would have ended the process. */
    static final class Exited extends Error {
    }

    /** With what the program has exited first: some catch what ends them here, and exit again. */
    static Integer status;

    /** What the program wants to be done at its end: some close their clients there. */
    static List hooks = new ArrayList();

    public static void main(String[] none) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out));
        // The same streams for all programs, since Scala's keep those that they find first.
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        Exit.Procedure exit = new Exit.Procedure() {
            public void execute(int code, String message) {
                exited(code);
                throw new Exited();
            }
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder(new Exit.ShutdownHookAdder() {
            public void addShutdownHook(String name, Runnable hook) {
                hooks.add(hook);
            }
        });
        while (true) {
            String[] arguments;
            try {
                arguments = new String[requests.readInt() - 2];
            } catch (EOFException nobodyAsksAnyMore) {
                Runtime.getRuntime().halt(0);
                return;
            }
            System.setIn(new ByteArrayInputStream(bytes(requests)));
            String mainClass = text(requests);
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = text(requests);
            }
            output.reset();
            errors.reset();
            answers.writeInt(run(mainClass, arguments));
            write(answers, output);
            write(answers, errors);
            answers.flush();
        }
    }

    static synchronized void exited(int code) {
        if (status == null) {
            status = Integer.valueOf(code);
        }
    }

    private static int run(String mainClass, String[] arguments) {
        status = null;
        try {
            Class.forName(mainClass).getMethod("main", new Class[] {String[].class})
                .invoke(null, new Object[] {arguments});
            exited(0);
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Exited)) {
                failed.getCause().printStackTrace();
            }
            exited(1);
        } catch (ReflectiveOperationException noProgram) {
            noProgram.printStackTrace();
            exited(1);
        }
        for (int i = 0; i < hooks.size(); i++) {
            ((Runnable) hooks.get(i)).run();
        }
        hooks.clear();
        return status.intValue();
    }

    private static byte[] bytes(DataInputStream requests) throws IOException {
        byte[] bytes = new byte[requests.readInt()];
        requests.readFully(bytes);
        return bytes;
    }

    private static String text(DataInputStream requests) throws IOException {
        return new String(bytes(requests), "UTF-8");
    }

    private static void write(DataOutputStream answers, ByteArrayOutputStream written) throws IOException {
        byte[] bytes = written.toByteArray();
        answers.writeInt(bytes.length);
        answers.write(bytes);
    }
}
