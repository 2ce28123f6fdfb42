// Stores each order in the database and publishes it.
'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { Client } = require('pg')

const kafka = new Kafka({
  brokers: [process.env.KAFKA_BOOTSTRAP_SERVERS],
  clientId: 'shipments',
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 50 },
})
const consumer = kafka.consumer({ groupId: 'shipments', maxWaitTimeInMs: 100 })
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
const db = new Client(process.env.ODRADEK_POSTGRES)

const end = (failure) => {
  console.error('ends:', failure)
  process.exit(1)
}

const ship = async ({ message }) => {
  const { id, customer, amount } = JSON.parse(message.value)
  await db.query('BEGIN')
  const insert = 'INSERT INTO results VALUES ($1, $2, $3) ON CONFLICT DO NOTHING'
  const { rowCount } = await db.query(insert, [id, customer, amount])
  if (rowCount === 1) {
    await producer.send({ topic: 'events', messages: [{ key: id, value: message.value }] })
  }
  await db.query('COMMIT')
}

const eachMessage = (payload) => ship(payload).catch(end)

const main = async () => {
  db.on('error', end)
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await db.connect()
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: ['orders'], fromBeginning: true })
  await consumer.run({ autoCommitThreshold: 1, eachMessage })
}

main().catch(end)
