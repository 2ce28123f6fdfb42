// Copies topic "in" to "out" in transactions.
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
const transactionalId = `copier-${instance}`
const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })

const end = (failure) => {
  console.error('ends:', failure)
  process.exit(1)
}

const eachBatch = async ({ batch: { messages } }) => {
  try {
    const transaction = await producer.transaction()
    const results = messages.map(({ key, value }) => ({ key, value: value.toString().toUpperCase() }))
    await transaction.send({ topic: 'out', messages: results })
    await transaction.commit()
  } catch (failure) {
    end(failure)
  }
}

const main = async () => {
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: ['in'], fromBeginning: true })
  await consumer.run({ eachBatch })
}

main().catch(end)
