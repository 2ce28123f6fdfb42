package org.apache.spark.kafka010;

import java.io.IOException;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.mockito.Mockito;
import scala.Tuple2;
import scala.collection.Iterable;

/** The members of this trait that KafkaDataConsumerSuite uses. Spark does not publish the jar that contains it. */
public interface KafkaDelegationTokenTest {
    SparkEnv org$apache$spark$kafka010$KafkaDelegationTokenTest$$savedSparkEnv();

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$$savedSparkEnv_$eq(SparkEnv env);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$$super$beforeEach();

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$$super$afterEach();

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$identifier1_$eq(String identifier);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$bootStrapServers_$eq(String servers);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenService1_$eq(Text service);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenId1_$eq(String id);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenPassword1_$eq(String password);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenId2_$eq(String id);

    void org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenPassword2_$eq(String password);

    static void $init$(KafkaDelegationTokenTest suite) {
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$identifier1_$eq("cluster");
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$bootStrapServers_$eq("127.0.0.1:0");
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenService1_$eq(KafkaTokenUtil.getTokenService("cluster"));
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenId1_$eq("id1");
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenPassword1_$eq("password1");
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenId2_$eq("id2");
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$_setter_$tokenPassword2_$eq("password2");
    }

    static void beforeEach$(KafkaDelegationTokenTest suite) {
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$$super$beforeEach();
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$$savedSparkEnv_$eq(SparkEnv.get());
    }

    static void afterEach$(KafkaDelegationTokenTest suite) {
        UserGroupInformation.reset();
        SparkEnv.set(suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$$savedSparkEnv());
        suite.org$apache$spark$kafka010$KafkaDelegationTokenTest$$super$afterEach();
    }

    static void setSparkEnv$(KafkaDelegationTokenTest suite, Iterable<Tuple2<String, String>> settings) {
        SparkEnv env = Mockito.mock(SparkEnv.class);
        Mockito.when(env.conf()).thenReturn(new SparkConf().setAll(settings));
        SparkEnv.set(env);
    }

    static void addTokenToUGI$(KafkaDelegationTokenTest suite, Text service, String id, String password) throws IOException {
        UserGroupInformation.getCurrentUser().addToken(
            new Token<>(id.getBytes(), password.getBytes(), KafkaTokenUtil.TOKEN_KIND(), service)
        );
    }
}
