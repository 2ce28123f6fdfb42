import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Leaves out tests: all of a method, or those of a class whose display name contains a text. JUnit finds this class as a service. */
public final class LeftOut implements ExecutionCondition {
    /** Reasons, by {@code class.method}, or by a class, a space and a part of the display name. */
    static final Map<String, String> REASONS = new LinkedHashMap<>();

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext test) {
        String itsClass = test.getTestClass().map(Class::getName).orElse("");
        String method = itsClass + "." + test.getTestMethod().map(each -> each.getName()).orElse("");
        String display = test.getDisplayName();
        for (Map.Entry<String, String> each : REASONS.entrySet()) {
            String[] key = each.getKey().split(" ", 2);
            if (key.length == 1 ? key[0].equals(method) : key[0].equals(itsClass) && display.contains(key[1])) {
                return ConditionEvaluationResult.disabled(each.getValue());
            }
        }
        return ConditionEvaluationResult.enabled("");
    }
}
