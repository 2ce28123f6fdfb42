// Sends each order to the payment service.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const kafka = new Kafka({
  brokers: [process.env.KAFKA_BOOTSTRAP_SERVERS],
  clientId: 'webhook',
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 50 },
})
const consumer = kafka.consumer({ groupId: 'webhook', maxWaitTimeInMs: 100 })

const end = (failure) => {
  console.error('ends:', failure)
  process.exit(1)
}

const pay = async ({ id, amount }) => {
  const response = await fetch(`${process.env.ODRADEK_HTTP}/v1/payments`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ order: id, amount }),
    signal: AbortSignal.timeout(2000),
  })
  if (!response.ok) throw new Error(`${id}: ${response.status}`)
}

const eachMessage = ({ message }) => pay(JSON.parse(message.value)).catch(end)

const main = async () => {
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await consumer.connect()
  await consumer.subscribe({ topics: ['orders'], fromBeginning: true })
  await consumer.run({ autoCommitThreshold: 1, eachMessage })
}

main().catch(end)
