package org.apache.spark.sql.kafka010;

import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/** Scala's companion of KafkaTestUtils: the default values of the constructor's parameters. */
public final class KafkaTestUtils$ {
    public static final KafkaTestUtils$ MODULE$ = new KafkaTestUtils$();

    private KafkaTestUtils$() {
    }

    public Map<String, Object> $lessinit$greater$default$1() {
        return Map$.MODULE$.empty();
    }

    public boolean $lessinit$greater$default$2() {
        return false;
    }
}
