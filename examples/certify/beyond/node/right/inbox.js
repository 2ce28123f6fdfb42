// Books each order once: the inbox has the orders that were booked.
'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { Pool } = require('pg')

const kafka = new Kafka({
  brokers: [process.env.KAFKA_BOOTSTRAP_SERVERS],
  clientId: 'inbox',
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 50 },
})
const consumer = kafka.consumer({ groupId: 'inbox', maxWaitTimeInMs: 100 })
const pool = new Pool({ connectionString: process.env.ODRADEK_POSTGRES, max: 2 })

const end = (failure) => {
  console.error('ends:', failure)
  process.exit(1)
}

const book = async (orders) => {
  const db = await pool.connect()
  await db.query('BEGIN')
  for (const { id, amount } of orders) {
    const { rowCount } = await db.query('INSERT INTO inbox VALUES ($1) ON CONFLICT DO NOTHING', [id])
    if (rowCount === 1) await db.query('INSERT INTO entries (id, amount) VALUES ($1, $2)', [id, amount])
  }
  await db.query('COMMIT')
  db.release()
}

const eachBatch = async ({ batch: { topic, partition, messages } }) => {
  try {
    await book(messages.map(({ value }) => JSON.parse(value)))
    const offset = String(BigInt(messages.at(-1).offset) + 1n)
    await consumer.commitOffsets([{ topic, partition, offset }])
  } catch (failure) {
    end(failure)
  }
}

const main = async () => {
  pool.on('error', (failure) => console.error('a connection is closed:', failure.message))
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await consumer.connect()
  await consumer.subscribe({ topics: ['orders'], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch })
}

main().catch(end)
