package sparklog.ui;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

/**
 * The last progress of each streaming query of the application, whichever session it is of.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class QueryListener extends SparkListener {
    private static final int MAX_QUERIES = 100;

    private final Map queries = new LinkedHashMap();
    private boolean changed = false;

    public synchronized void onOtherEvent(SparkListenerEvent event) {
        if (event instanceof StreamingQueryListener.QueryProgressEvent) {
            StreamingQueryProgress progress = ((StreamingQueryListener.QueryProgressEvent) event).progress();
            query(progress.runId()).progress = progress;
        } else if (event instanceof StreamingQueryListener.QueryTerminatedEvent) {
            StreamingQueryListener.QueryTerminatedEvent ended = (StreamingQueryListener.QueryTerminatedEvent) event;
            query(ended.runId()).failure = ended.exception().isEmpty() ? "" : (String) ended.exception().get();
        }
    }

    /**
     * Returns what has changed since the last call as text, else null: a query after the other, ended by \u0002, each
     * with why it ended (\u0003 while it runs) and its progress, parted by \u0001.
     */
    public synchronized String read() {
        if (!changed) {
            return null;
        }
        changed = false;
        StringBuilder text = new StringBuilder();
        Iterator all = queries.values().iterator();
        while (all.hasNext()) {
            Query query = (Query) all.next();
            if (query.progress != null) {
                text.append(query.failure == null ? "\u0003" : query.failure.replaceAll("[\u0001-\u0003]", " "));
                text.append('\u0001').append(query.progress.json()).append('\u0002');
            }
        }
        return text.toString();
    }

    private Query query(Object runId) {
        changed = true;
        Query query = (Query) queries.get(runId);
        if (query == null) {
            query = new Query();
            queries.put(runId, query);
            forgetOne();
        }
        return query;
    }

    /** Of too many, forgets the one that ended first, or else the one that began first. */
    private void forgetOne() {
        if (queries.size() <= MAX_QUERIES) {
            return;
        }
        Iterator all = queries.entrySet().iterator();
        Object oldest = queries.keySet().iterator().next();
        while (all.hasNext()) {
            Map.Entry entry = (Map.Entry) all.next();
            if (((Query) entry.getValue()).failure != null) {
                oldest = entry.getKey();
                break;
            }
        }
        queries.remove(oldest);
    }

    static final class Query {
        StreamingQueryProgress progress = null;
        String failure = null;
    }
}
