package kafka.security.minikdc;

import java.io.File;
import java.util.List;
import java.util.Properties;
import org.opentest4j.TestAbortedException;

/** The key distribution center of tests with Kerberos. Other tests only load the class, without the jars of Apache Directory. */
public class MiniKdc {
    public MiniKdc(Properties config, File workDir) {
        throw new TestAbortedException("uses Kerberos");
    }

    public static Properties createConfig() {
        return new Properties();
    }

    public void start() {
    }

    public void createPrincipal(File keytabFile, List<String> principals) {
    }

    public void stop() {
    }
}
