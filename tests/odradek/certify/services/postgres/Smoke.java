import java.io.StringReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.postgresql.PGConnection;

/** Uses PostgreSQL in the ways of JDBC, and prints what it sees: java Smoke.java URL. */
public class Smoke {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            Statement statement = connection.createStatement();
            System.out.println("autocommit " + statement.executeUpdate("INSERT INTO results VALUES (1, 10)"));
            connection.setAutoCommit(false);
            PreparedStatement insert = connection.prepareStatement("INSERT INTO results VALUES (?, ?)");
            for (int id = 2; id < 12; id++) {
                insert.setInt(1, id);
                insert.setInt(2, id * 10);
                insert.addBatch();
            }
            System.out.println("batch " + insert.executeBatch().length);
            connection.commit();
            PreparedStatement select = connection.prepareStatement("SELECT id, amount FROM results ORDER BY id");
            select.setFetchSize(3);
            try (ResultSet rows = select.executeQuery()) {
                while (rows.next()) {
                    System.out.println("row " + rows.getLong(1) + " " + rows.getInt(2));
                }
            }
            for (int round = 0; round < 7; round++) {
                insert.setInt(1, 100 + round);
                insert.setInt(2, round);
                insert.executeUpdate();
            }
            connection.rollback();
            try {
                statement.executeUpdate("INSERT INTO results VALUES (1, 10)");
            } catch (SQLException error) {
                System.out.println("error " + error.getSQLState());
            }
            connection.rollback();
            System.out.println("several " + statement.execute("SELECT 1; UPDATE results SET amount = 0 WHERE id = 2"));
            connection.commit();
            long copied = connection.unwrap(PGConnection.class).getCopyAPI()
                .copyIn("COPY results FROM STDIN", new StringReader("20\t1\n21\t2\n"));
            System.out.println("copy " + copied);
            statement.execute("PREPARE TRANSACTION 'smoke'");
            connection.setAutoCommit(true);
            statement.execute("COMMIT PREPARED 'smoke'");
            statement.setQueryTimeout(1);
            try {
                statement.execute("SELECT pg_sleep(600)");
            } catch (SQLException error) {
                System.out.println("timeout " + error.getSQLState());
            }
            PreparedStatement keys =
                connection.prepareStatement("INSERT INTO results VALUES (30, 3)", Statement.RETURN_GENERATED_KEYS);
            keys.executeUpdate();
            try (ResultSet found = keys.getGeneratedKeys()) {
                found.next();
                System.out.println("key " + found.getLong(1));
            }
            try (ResultSet tables = connection.getMetaData().getTables(null, "public", "results", null)) {
                tables.next();
                System.out.println("table " + tables.getString("TABLE_NAME"));
            }
        }
    }
}
