// Runs the unmodified Kafka module of Testcontainers for Node: each argument NAME=IMAGE starts a container, and prints what was read.
"use strict";

const { KafkaContainer } = require("@testcontainers/kafka");
const { Kafka, logLevel } = require("kafkajs");

const containers = {
  KafkaContainer: (image) => new KafkaContainer(image),
  "KafkaContainer.withKraft": (image) => new KafkaContainer(image).withKraft(),
};

// Aborts one transaction, commits another, and returns what a read_committed consumer reads.
async function transaction(broker) {
  const kafka = new Kafka({ clientId: "test", brokers: [broker], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ transactionalId: "orders", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const value of ["lost", "paid"]) {
    const open = await producer.transaction();
    await open.send({ topic: "orders", messages: [{ value }] });
    await (value === "paid" ? open.commit() : open.abort());
  }
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "test" });
  const read = [];
  await consumer.connect();
  await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer
      .run({
        eachMessage: async ({ message }) => {
          read.push(message.value.toString());
          if (read.includes("paid")) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  return read;
}

async function main() {
  for (const argument of process.argv.slice(2)) {
    const [name, image] = argument.split("=");
    const container = await containers[name](image).start();
    const read = await transaction(`${container.getHost()}:${container.getMappedPort(9093)}`);
    await container.stop();
    console.log(JSON.stringify({ module: name, read }));
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
