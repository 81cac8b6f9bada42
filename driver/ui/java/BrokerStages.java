package sparklog.ui;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.Stage;
import scala.Option;

/**
 * Figures on the pages of the brokers' stages: named accumulators of theirs, as Spark shows a user's own.
 *
 * A stage's page is made of the StageInfo that the scheduler holds. No task of a broker ends while it serves, so
 * nobody else changes it. Spark writes it to where pages are read from with an executor's heartbeat, every 10 s.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class BrokerStages {
    private final SparkContext context;

    public BrokerStages(SparkContext context) {
        this.context = context;
    }

    /** Shows figures: names and values in turn, one a line. */
    public void show(int stageId, String figures) {
        Option stage = context.dagScheduler().stageIdToStage().get(Integer.valueOf(stageId));
        if (stage.isEmpty()) {
            return;
        }
        String[] lines = figures.split("\n", -1);
        for (int number = 0; number + 1 < lines.length; number += 2) {
            // Accumulators are numbered from 0 up.
            long id = -1 - number / 2;
            AccumulableInfo info = new AccumulableInfo(
                id, Option.apply(lines[number]), Option.apply(null), Option.apply(lines[number + 1]), false, true,
                Option.apply(null));
            ((Stage) stage.get()).latestInfo().accumulables().put(Long.valueOf(id), info);
        }
    }
}
