import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import kafkajs from "kafkajs";
import { Odradek } from "./odradek.mjs";

let broker, kafka;

before(async () => {
  broker = await Odradek.start("--topic", "orders:1");
  kafka = new kafkajs.Kafka({ brokers: broker.bootstrapServers.split(","), logLevel: kafkajs.logLevel.NOTHING });
});
beforeEach(() => broker.reset());
after(() => broker.stop());

async function commit() {
  const producer = kafka.producer({ transactionalId: "payments", maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  const transaction = await producer.transaction();
  await transaction.send({ topic: "orders", messages: [{ value: "paid" }] });
  await transaction.commit();
  await producer.disconnect();
}

async function endOffset() {
  const admin = kafka.admin();
  await admin.connect();
  const [{ offset }] = await admin.fetchTopicOffsets("orders");
  await admin.disconnect();
  return offset;
}

test("a commit whose response is lost is an error for kafkajs, but is committed", async () => {
  const rule = await broker.addFault("EndTxn nth=1 -> lose-answer");
  await assert.rejects(commit()); // kafkajs does not send EndTxn again: repeating the work would duplicate the record
  assert.equal(await endOffset(), "2"); // the record and its marker
  assert.equal(await broker.hits(rule), 1);
});

test("a reset removes the records of the test before", async () => {
  assert.equal(await endOffset(), "0");
  await commit();
  assert.equal(await endOffset(), "2");
});
