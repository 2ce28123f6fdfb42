package org.apache.kafka.common.utils;

/** The class that the file connectors of 4.3.1 ask for their version; Kafka 4.4 has moved it to utils.internals. */
public final class AppInfoParser {
    private AppInfoParser() {}

    public static String getVersion() {
        return "4.3.1";
    }
}
