package org.apache.kafka.common.requests;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints the responses that Kafka creates for errors, with its own AbstractRequest.getErrorResponse:
 *
 * ErrorAnswers FILE
 *
 * FILE has a line for each request, "KEY VERSION CODE BODY", the body in hexadecimal digits. It prints a line for each, the body of the
 * response.
 */
public final class ErrorAnswers {
    private ErrorAnswers() {}

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            AbstractRequest request =
                AbstractRequest.parseRequest(ApiKeys.forId(Integer.parseInt(words[0])), version, new ByteBufferAccessor(body)).request;
            Exception error = Errors.forCode(Short.parseShort(words[2])).exception();
            ByteBuffer answer = request.getErrorResponse(0, error).serialize(version).buffer();
            byte[] bytes = new byte[answer.remaining()];
            answer.get(bytes);
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }
}
