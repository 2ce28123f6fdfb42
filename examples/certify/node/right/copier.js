// Copies topic "in" to "out": outputs and offsets in one transaction. Each partition of the input has a transactional
// id of its own, because kafkajs sends no group member with the offsets.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, instance] = process.argv.slice(2)
const groupId = 'copier'
const kafka = new Kafka({
  brokers: [bootstrap],
  clientId: `copier-${instance}`,
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 50 },
})
const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 })
const admin = kafka.admin()
const producers = new Map()

const end = (failure) => {
  console.error('ends:', failure)
  process.exit(1)
}

/** The producer for a partition. Its first transaction fences the previous owner's producer. */
const producerOf = async (partition) => {
  if (!producers.has(partition)) {
    const transactionalId = `copier-${partition}`
    const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    producers.set(partition, producer)
  }
  return producers.get(partition)
}

const committed = async (partition) => {
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: ['in'] })
  return BigInt(partitions.find((each) => each.partition === partition)?.offset ?? -1)
}

const eachBatch = async ({ batch: { partition, messages } }) => {
  try {
    const transaction = await (await producerOf(partition)).transaction()
    const position = await committed(partition)
    const rest = messages.filter(({ offset }) => BigInt(offset) >= position)
    if (rest.length === 0) return await transaction.abort()
    const results = rest.map(({ key, value }) => ({ key, value: value.toString().toUpperCase() }))
    await transaction.send({ topic: 'out', messages: results })
    const offset = String(BigInt(rest.at(-1).offset) + 1n)
    const topics = [{ topic: 'in', partitions: [{ partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: groupId, topics })
    await transaction.commit()
  } catch (failure) {
    end(failure)
  }
}

const main = async () => {
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await admin.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: ['in'], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch })
}

main().catch(end)
