// Runs the cells of a file (tests/clients/security/cells.py) with kafkajs, concurrently, with one line of JSON for each.
// Those that stay end when the test writes a line.
'use strict'

const { once } = require('node:events')
const { readFileSync } = require('node:fs')
const { setTimeout } = require('node:timers/promises')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const AGAIN_MS = 20

const say = (what) => console.log(JSON.stringify(what))

let isEnough = false
Promise.race([once(process.stdin, 'data'), once(process.stdin, 'end')]).then(() => {
  isEnough = true
})

/** The names of an error and of its causes, and its text. */
const describe = (error) => {
  const names = []
  for (let each = error; each; each = each.cause) names.push(each.name)
  return `${names.join(' ')} ${error.message}`
}

const connect = (cell) =>
  new Kafka({
    brokers: [cell.bootstrap],
    clientId: cell.name,
    logLevel: logLevel.WARN,
    logCreator: () => ({ log }) => console.error(log.message, log.error ?? ''),
    retry: { initialRetryTime: 50, retries: cell.does === 'knock' ? 0 : 5 },
    // The default is ten seconds, more than these sessions last.
    reauthenticationThreshold: 500,
    ssl: cell.tls && {
      ca: readFileSync(cell.ca),
      ...(cell.certificate && { cert: readFileSync(cell.certificate), key: readFileSync(cell.key) }),
    },
    sasl: cell.mechanism && {
      mechanism: cell.mechanism.toLowerCase(),
      username: cell.user,
      password: cell.password,
      oauthBearerProvider: async () => ({ value: token(cell) }),
    },
  })

/** The cell's token, or a new unsecured one. */
const token = (cell) => {
  const now = Date.now() / 1000
  const claims = { sub: cell.user, iat: now, exp: now + cell.token_ms / 1000 }
  const encoded = (part) => Buffer.from(JSON.stringify(part)).toString('base64url')
  return cell.token || `${encoded({ alg: 'none' })}.${encoded(claims)}.`
}

const newProducer = (kafka, options = {}) =>
  kafka.producer({ maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner, ...options })

const read = async (kafka, topic) => {
  const consumer = kafka.consumer({ groupId: topic, readUncommitted: false, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const values = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    const eachMessage = async ({ message }) => {
      if (values.push(message.value.toString()) === 3) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  return values
}

const orders = {
  /** Abort one transaction, commit another, and read the committed records. */
  async transaction(kafka, { topic }) {
    const producer = newProducer(kafka, { idempotent: true, transactionalId: topic })
    await producer.connect()
    for (const [end, ...values] of [['abort', 'aborted'], ['commit', 'a', 'b', 'c']]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: values.map((value) => ({ value })) })
      await transaction[end]()
    }
    await producer.disconnect()
    return { values: await read(kafka, topic) }
  },

  /** Connect, and send a request: kafkajs takes the broker's refusal of a token for an acceptance. */
  async knock(kafka) {
    const admin = kafka.admin()
    await admin.connect()
    await admin.listTopics()
    await admin.disconnect()
    return {}
  },

  /** Write one record after the other until stopped. */
  async stay(kafka, { topic }) {
    const producer = newProducer(kafka)
    await producer.connect()
    let written = 0
    for (; !isEnough; written++) {
      await producer.send({ topic, messages: [{ value: 'staying' }] })
      await setTimeout(AGAIN_MS)
    }
    await producer.disconnect()
    return { written }
  },
}

const cells = JSON.parse(readFileSync(process.argv[3]))
Promise.all(
  cells.map(async (cell) => {
    try {
      say({ cell: cell.name, ...(await orders[cell.does](connect(cell), cell)) })
    } catch (error) {
      say({ cell: cell.name, error: describe(error) })
    }
  }),
).then(() => process.exit(0))
