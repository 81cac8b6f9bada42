package sparklog.spark;

import sun.misc.Signal;
import sun.misc.SignalHandler;

/**
 * Keeps the JVM alive at a signal that would end it, and remembers that it came.
 *
 * Compiled by Janino: without lambdas.
 */
public final class StopSignal implements SignalHandler {
    private volatile boolean received = false;

    public void handle(Signal signal) {
        received = true;
    }

    public void receive(String name) {
        Signal.handle(new Signal(name), this);
    }

    public boolean isReceived() {
        return received;
    }
}
