import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** The CPU time of the broker, of this client and of the machine, from the constructor on. */
public class Usage {
    private static final double TICKS_PER_SECOND = 100;

    private final String pid;
    private final double broker;
    private final double machine;
    private final double client = clientCpu();
    private final long begun = System.nanoTime();

    public Usage(String pid) throws Exception {
        this.pid = pid;
        broker = brokerCpu();
        machine = machineCpu();
    }

    /** Seconds since the constructor, the broker's CPU seconds, and the cores that other processes used. */
    public record Times(double wall, double broker, double others) {
        /** The result of a client as JSON, with the fields of the compiled client in `benchmarks/load`. */
        public String outcome(long operations, long bytes, String moreFields) {
            return String.format(
                    "{\"operations\": %d, \"bytes\": %d, \"retries\": 0, \"wall_s\": %.6f, \"broker_cpu_s\": %.4f,"
                            + " \"other_cpu\": %.4f%s}",
                    operations, bytes, wall, broker, others, moreFields);
        }
    }

    public Times times() throws Exception {
        double wall = (System.nanoTime() - begun) / 1e9;
        double used = brokerCpu() - broker;
        double others = Math.max(machineCpu() - machine - used - (clientCpu() - client), 0) / wall;
        return new Times(wall, used, others);
    }

    private static double clientCpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    private double brokerCpu() throws Exception {
        String stat = Files.readString(Path.of("/proc", pid, "stat"));
        // The second field is the program's name in parentheses. The name may contain any character.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / TICKS_PER_SECOND;
    }

    private static double machineCpu() throws Exception {
        String[] fields = Files.readAllLines(Path.of("/proc/stat")).get(0).split(" +");
        // user, nice, system, irq, softirq, steal
        return Arrays.stream(new int[] {1, 2, 3, 6, 7, 8}).mapToLong(each -> Long.parseLong(fields[each])).sum()
                / TICKS_PER_SECOND;
    }
}
