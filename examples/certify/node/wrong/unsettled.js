// Copies topic "in" to "out", each record with a unique key.
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
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })

const end = (failure) => {
  console.error('ends:', failure)
  process.exit(1)
}

const eachMessage = async ({ partition, message: { offset, value } }) => {
  const result = { key: `${partition}-${offset}`, value: value.toString().toUpperCase() }
  producer.send({ topic: 'out', messages: [result] }).catch(end)
}

const main = async () => {
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: ['in'], fromBeginning: true })
  await consumer.run({ eachMessage })
}

main().catch(end)
