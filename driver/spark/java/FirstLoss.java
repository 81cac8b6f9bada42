package sparklog.spark;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/**
 * Fails the jobs of some groups with their first lost task, which Spark would otherwise start again.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class FirstLoss extends SparkListener {
    private static final String JOB_GROUP = "spark.jobGroup.id";

    private final SparkContext context;
    private final Set jobGroups;
    private final Set stages = ConcurrentHashMap.newKeySet();

    /**
     * Takes the context, and a concurrent set of groups to which more may be added.
     */
    public FirstLoss(Object context, Object jobGroups) {
        this.context = (SparkContext) context;
        this.jobGroups = (Set) jobGroups;
    }

    public void onStageSubmitted(SparkListenerStageSubmitted submitted) {
        String jobGroup = submitted.properties() == null ? null : submitted.properties().getProperty(JOB_GROUP);
        if (jobGroup != null && jobGroups.contains(jobGroup)) {
            stages.add(new Integer(submitted.stageInfo().stageId()));
        }
    }

    public void onTaskEnd(SparkListenerTaskEnd ended) {
        if (ended.reason() instanceof TaskFailedReason && stages.remove(new Integer(ended.stageId()))) {
            context.cancelStage(ended.stageId(), ((TaskFailedReason) ended.reason()).toErrorString());
        }
    }

    public void onStageCompleted(SparkListenerStageCompleted completed) {
        stages.remove(new Integer(completed.stageInfo().stageId()));
    }
}
