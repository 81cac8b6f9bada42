package sparklog.ui;

import com.fasterxml.jackson.core.JsonProcessingException;
import jakarta.servlet.UnavailableException;
import jakarta.servlet.http.HttpServletRequest;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.ui.CspNonce; // since Spark 4.2
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import org.json4s.JValue;
import org.json4s.jackson.JsonMethods$;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction0;
import scala.xml.Unparsed;

/**
 * The Log tab of Spark's UI. What it shows is put into it by the driver's Python, through `put`; Java calls nothing
 * there. The overview and its JSON are always there. Any other page is made when somebody looks at it: `next`
 * tells Python which. Who asks for such a page waits for a new one a moment, and then gets what there was before; if
 * there was nothing, he waits for as long as Python may still be about to make it. So a Python that stands still
 * holds no page up, and each page says how old its figures are. JSON that nobody has put yet is status 503.
 *
 * Compiled by Janino: without lambdas, and with raw types.
 */
public final class LogTab extends SparkUITab {
    /** Stands in the pages for whatever comes before the paths of the UI: nothing, or where a proxy has it. */
    private static final String UI_ROOT_MARK = "\u0001";
    private static final int MAX_PAGES = 64;
    private static final int MAX_ASKED = 32;
    private static final int MAX_NAME_LENGTH = 1000;
    private static final long WAIT_MS = 1000;
    private static final int RETRY_AFTER_S = 1;

    private final SparkUI ui;
    private final long oldMs;
    private final Map pages = new LinkedHashMap(16, 0.75f, true);
    private final ArrayBlockingQueue asked = new ArrayBlockingQueue(MAX_ASKED);
    private volatile long heardMs = System.currentTimeMillis();

    /** Figures older than `oldMs` are said to be old. */
    public LogTab(SparkUI ui, String oldMs) {
        super(ui, "log");
        this.ui = ui;
        this.oldMs = Long.parseLong(oldMs);
        attachPage(new LogPage(this, "", "Log"));
        attachPage(new LogPage(this, "topics", "Topics"));
        attachPage(new LogPage(this, "topic", "Topic"));
        attachPage(new LogPage(this, "producers", "Producers of"));
        attachPage(new LogPage(this, "groups", "Groups"));
        attachPage(new LogPage(this, "group", "Group"));
        attachPage(new LogPage(this, "transactions", "Transactions"));
    }

    public void attach() {
        ui.attachTab(this);
    }

    public void detach() {
        ui.detachTab(this);
    }

    /** Has who waits in `next` wait no more. */
    public void wake() {
        asked.offer("");
    }

    /** Puts a page where it is looked for; its key is as `next` gave it. */
    public void put(String key, String html, String json) {
        Page page = new Page(html, json, System.currentTimeMillis());
        synchronized (pages) {
            pages.put(key, page);
            Iterator oldest = pages.keySet().iterator();
            while (pages.size() > MAX_PAGES) {
                // The overview, asked for or not, is put every second, and so is never the oldest.
                oldest.next();
                oldest.remove();
            }
            pages.notifyAll();
        }
    }

    /** Waits for a page that somebody looks at; null for none, "" when woken. */
    public String next(long timeoutMs) throws InterruptedException {
        heardMs = System.currentTimeMillis();
        return (String) asked.poll(timeoutMs, TimeUnit.MILLISECONDS);
    }

    Page page(String key) {
        synchronized (pages) {
            Page known = (Page) pages.get(key);
            long startedMs = System.currentTimeMillis();
            if (key.equals("") || startedMs - heardMs > oldMs || !asked.offer(key)) {
                return known;
            }
            long waitMs = known == null ? oldMs : WAIT_MS;
            long leftMs = waitMs;
            while (leftMs > 0) {
                Page page = (Page) pages.get(key);
                if (page != null && page != known) {
                    return page;
                }
                try {
                    pages.wait(leftMs);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    break;
                }
                leftMs = startedMs + waitMs - System.currentTimeMillis();
            }
            return known;
        }
    }

    String age(Page page) {
        long ageMs = Math.max(0, System.currentTimeMillis() - page.putMs);
        if (ageMs <= oldMs) {
            return "<p id=\"sparklog-age\" class=\"text-secondary\">Figures of "
                + ageMs / 1000 + "." + ageMs % 1000 / 100 + " s ago</p>";
        }
        return "<p id=\"sparklog-age\" class=\"alert alert-warning\">These figures are "
            + ageMs / 1000 + " s old: the driver's Python does not put new ones here.</p>";
    }

    static final class Page {
        final String html;
        final String json;
        final long putMs;

        Page(String html, String json, long putMs) {
            this.html = html;
            this.json = json;
            this.putMs = putMs;
        }
    }

    static final class LogPage extends WebUIPage {
        /** Fetches the page again while somebody looks at it, and puts what is new in place of what is there. */
        private static final String REFRESH =
            "(function(){"
            + "var selecting=function(){return String(document.getSelection())!=='';};"
            + "setInterval(function(){"
            + "if(document.hidden||selecting())return;"
            + "fetch(location.href,{cache:'no-store'}).then(function(r){if(!r.ok)throw r.status;return r.text();})"
            + ".then(function(text){"
            + "var fresh=new DOMParser().parseFromString(text,'text/html').getElementById('sparklog');"
            + "var shown=document.getElementById('sparklog');"
            + "if(fresh&&shown&&!selecting())shown.replaceWith(fresh);"
            + "}).catch(function(){"
            + "var age=document.getElementById('sparklog-age');"
            + "if(age){age.className='alert alert-danger';age.textContent='The cluster does not answer any more.';}"
            + "});},2000);})()";

        private final LogTab tab;
        private final String name;
        private final String title;

        LogPage(LogTab tab, String name, String title) {
            super(name);
            this.tab = tab;
            this.name = name;
            this.title = title;
        }

        public Seq render(HttpServletRequest request) {
            Page page = tab.page(key(request));
            String content;
            if (page == null) {
                content = "<p id=\"sparklog-age\" class=\"alert alert-warning\">There are no figures yet.</p>";
            } else {
                String root = escaped(UIUtils.prependBaseUri(request, tab.basePath(), ""));
                content = tab.age(page) + page.html.replace(UI_ROOT_MARK, root);
            }
            final Unparsed body = new Unparsed(
                "<div id=\"sparklog\">" + content + "</div>"
                + "<script"
                + " nonce=\"" + CspNonce.get() + "\"" // since Spark 4.2
                + ">" + REFRESH + "</script>");
            return UIUtils.headerSparkPage(
                request,
                title(request),
                new AbstractFunction0() {
                    public Object apply() {
                        return body;
                    }
                },
                tab,
                Option.apply(null),
                false, // since Spark 4.2
                false,
                false);
        }

        public JValue renderJson(HttpServletRequest request) {
            Page page = tab.page(key(request));
            if (page == null) {
                // Jetty makes status 503 of it where it is a cause; thrown itself, it would take the page away.
                throw new IllegalStateException(
                    new UnavailableException("There are no figures yet: ask again", RETRY_AFTER_S));
            }
            try {
                return (JValue) JsonMethods$.MODULE$.mapper().readValue(page.json, JValue.class);
            } catch (JsonProcessingException e) {
                throw new IllegalStateException(e);
            }
        }

        /** The page and its parameters, each at its place, as Python takes them apart. */
        private String key(HttpServletRequest request) {
            if (name.equals("")) {
                return "";
            }
            String of = URLEncoder.encode(parameter(request, "name", MAX_NAME_LENGTH), StandardCharsets.UTF_8);
            return name + "\n" + of + "\n" + number(request, "partition") + "\n" + number(request, "page");
        }

        private String title(HttpServletRequest request) {
            String of = parameter(request, "name", MAX_NAME_LENGTH);
            String partition = number(request, "partition");
            return of.isEmpty() ? title : title + " " + of + (partition.isEmpty() ? "" : "-" + partition);
        }

        /**
         * Returns a parameter as it was sent. `getParameter` does not: Spark's own filter takes quotes and line ends
         * out of what it gives, and writes other characters as entities, and the names of groups may have them all.
         */
        private static String parameter(HttpServletRequest request, String name, int maxLength) {
            String query = request.getQueryString();
            String[] pairs = query == null ? new String[0] : query.split("&");
            for (int i = 0; i < pairs.length; i++) {
                if (pairs[i].startsWith(name + "=")) {
                    try {
                        String given =
                            URLDecoder.decode(pairs[i].substring(name.length() + 1), StandardCharsets.UTF_8);
                        return given.length() > maxLength ? "" : given;
                    } catch (IllegalArgumentException e) {
                        return ""; // somebody typed what is no such address
                    }
                }
            }
            return "";
        }

        private static String number(HttpServletRequest request, String name) {
            String given = parameter(request, name, 9);
            for (int i = 0; i < given.length(); i++) {
                if (given.charAt(i) < '0' || given.charAt(i) > '9') {
                    return "";
                }
            }
            return given;
        }

        private static String escaped(String text) {
            return text.replace("&", "&amp;").replace("\"", "&quot;").replace("<", "&lt;").replace(">", "&gt;");
        }
    }
}
