package sparklog.ui;

import java.lang.reflect.Field;
import org.apache.spark.SparkContext;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.StageData;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.collection.mutable.ListBuffer;

/**
 * The active stages without the brokers': what the console's progress bar is to show.
 *
 * The bar shows the first three active stages, and the brokers' are the first three for as long as the cluster runs:
 * a user's stage would never be seen. Spark has no way to leave one out. But the bar alone asks the context's status
 * store for its active stages, so it is given one that does not name them. The pages of the UI, REST and the status
 * tracker hold the store that was there before, and go on showing all.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class UsersStages extends AppStatusStore {
    private final SparkContext context;
    private final AppStatusStore whole;
    private final String brokersCallSite;

    /** Brokers' stages are those whose call site begins with this. */
    public UsersStages(SparkContext context, String brokersCallSite) {
        super(context.statusStore().store(), context.statusStore().listener(), context.statusStore().storePath());
        this.context = context;
        this.whole = context.statusStore();
        this.brokersCallSite = brokersCallSite;
    }

    /** Has the bar show these only. */
    public void begin() throws Exception {
        set(this);
    }

    /** Lets the bar show everything again. */
    public void end() throws Exception {
        if (context.statusStore() == this) {
            set(whole);
        }
    }

    public Seq activeStages() {
        ListBuffer users = new ListBuffer();
        Iterator stages = whole.activeStages().iterator();
        while (stages.hasNext()) {
            StageData stage = (StageData) stages.next();
            if (!stage.name().startsWith(brokersCallSite)) {
                users.addOne(stage);
            }
        }
        return users.toList();
    }

    private void set(AppStatusStore store) throws Exception {
        Field field = SparkContext.class.getDeclaredField("_statusStore");
        field.setAccessible(true);
        field.set(context, store);
    }
}
