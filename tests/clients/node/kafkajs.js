// Runs the orders of tests/clients/contract.py with kafkajs: one order per run, one line of JSON for each event.
'use strict'

const { once } = require('node:events')
const { ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const types = require('./codecs')

const PARTITIONS = 3
const RECORDS_A_CODEC = 200
const QUIET_MS = 500

const say = (what) => console.log(JSON.stringify(what))

/** Resolves when the test writes a line to our standard input, or closes it. */
const waitForWord = () => Promise.race([once(process.stdin, 'data'), once(process.stdin, 'end')])

/** kafkajs's name of an error: the broker's error code if there is one. */
const nameOf = (error) => error.type ?? error.cause?.type ?? error.name

/** Returns the error name of a call that must fail. */
const refusal = async (attempt) => {
  try {
    await attempt()
  } catch (error) {
    return nameOf(error)
  }
  return ''
}

const connect = (bootstrap) =>
  new Kafka({
    brokers: [bootstrap],
    clientId: 'kafkajs-program',
    logLevel: logLevel.WARN,
    logCreator: () => ({ log }) => console.error(log.message, log.error ?? ''),
    // A broker that is being restarted takes a while.
    retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 1000 },
  })

const newProducer = (kafka, options = {}) =>
  kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
    ...options,
  })

const newConsumer = (kafka, groupId, options = {}) =>
  kafka.consumer({
    groupId,
    heartbeatInterval: 100,
    sessionTimeout: 6000,
    rebalanceTimeout: 10000,
    maxWaitTimeInMs: 100,
    ...options,
  })

const orders = {
  /** Create a topic, create it again, add partitions, describe it, delete it. */
  async admin(kafka, topic) {
    const admin = kafka.admin()
    await admin.connect()
    const configEntries = [{ name: 'retention.ms', value: '60000' }]
    const wanted = { topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1, configEntries }] }
    await admin.createTopics(wanted)
    // kafkajs returns false if the topic exists.
    say({ again: String(await admin.createTopics(wanted)) })
    await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS + 1 }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }],
    })
    say({ partitions: topics[0].partitions.length, retention: resources[0].configEntries[0].configValue })
    await admin.deleteTopics({ topics: [topic] })
    say({ left: (await admin.listTopics()).includes(topic) })
    await admin.disconnect()
  },

  /** Produce idempotent batches with each codec. */
  async codecs(kafka, topic) {
    for (const [codec, compression] of [
      ['none', types.None],
      ['gzip', types.GZIP],
      ['snappy', types.Snappy],
      ['zstd', types.ZSTD],
    ]) {
      const producer = newProducer(kafka)
      await producer.connect()
      const messages = Array.from({ length: RECORDS_A_CODEC }, (_, i) => ({
        value: `${codec} ${i} of many that are alike`,
      }))
      const [{ baseOffset }] = await producer.send({ topic, compression, messages })
      await producer.disconnect()
      say({ codec, offset: Number(baseOffset), count: messages.length })
    }
  },

  /** Say to which partitions the keys "key-0", "key-1" and so on are sent. */
  async keys(kafka, topic, count) {
    const producer = newProducer(kafka)
    await producer.connect()
    for (let i = 0; i < Number(count); i++) {
      const key = `key-${i}`
      const [{ partition }] = await producer.send({ topic, messages: [{ key, value: 'value' }] })
      say({ key, partition })
    }
    await producer.disconnect()
  },

  /** Commit one transaction, abort one, leave one open until the test writes a line, with a plain record after it. */
  async transactions(kafka, topic, transactionalId) {
    const producer = newProducer(kafka, { transactionalId })
    await producer.connect()
    await (await fill(producer, topic, 'committed')).commit()
    await (await fill(producer, topic, 'aborted')).abort()
    const open = await fill(producer, topic, 'open')
    const plain = newProducer(kafka)
    await plain.connect()
    await plain.send({ topic, messages: [{ value: 'plain' }] })
    await plain.disconnect()
    say({ open: true })
    await waitForWord()
    await open.commit()
    say({ open: false })
    await producer.disconnect()
  },

  /** Read at least COUNT records as a member of a group, and commit. */
  async read(kafka, topic, groupId, isolation, count) {
    const consumer = newConsumer(kafka, groupId, { readUncommitted: isolation === 'read_uncommitted' })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    let seen = 0
    await new Promise((resolve, reject) => {
      let silence
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer
        .run({
          eachMessage: async ({ message }) => {
            say({ value: message.value.toString(), offset: Number(message.offset) })
            clearTimeout(silence)
            if (++seen >= Number(count)) silence = setTimeout(resolve, QUIET_MS)
          },
        })
        .catch(reject)
    })
    await consumer.disconnect()
  },

  /**
   * Consume, process, produce. Every third transaction is aborted, and its record is read again. It ends when it has
   * committed the record at the last of COUNT offsets. kafkajs does not retry a commit whose response is lost: then the
   * loop starts again at the group's committed offsets.
   */
  async loop(kafka, source, sink, groupId, count) {
    const tally = { done: 0, aborted: 0 }
    while (tally.done < Number(count)) {
      const producer = newProducer(kafka, { transactionalId: `${groupId}-loop` })
      const consumer = newConsumer(kafka, groupId)
      await producer.connect()
      await consumer.connect()
      // The first transaction calls InitProducerId, which ends an open transaction of the last producer before offsets are read.
      await (await producer.transaction()).abort()
      await consumer.subscribe({ topic: source, fromBeginning: true })
      await new Promise((resolve, reject) => {
        let over = false
        const eachMessage = async (record) => {
          try {
            while (!over && !(await processed(producer, record, source, sink, groupId, tally)));
            over ||= tally.done >= Number(count)
          } catch (error) {
            console.error('beginning anew:', error)
            over = true
          }
          if (over) resolve()
        }
        consumer.run({ autoCommit: false, eachMessage }).catch(reject)
      })
      await consumer.disconnect()
      await producer.disconnect()
    }
    say(tally)
  },

  /** Say the errors that the first of two producers with the same id gets for each request that it tries. */
  async zombie(kafka, topic, transactionalId) {
    for (const late of ['produce', 'commit', 'abort', 'offsets']) {
      const first = newProducer(kafka, { transactionalId })
      const second = newProducer(kafka, { transactionalId })
      await first.connect()
      await second.connect()
      const zombie = await fill(first, topic, 'zombie')
      const successor = await fill(second, topic, 'successor')
      const attempts = {
        produce: () => zombie.send({ topic, messages: [{ value: 'too late' }] }),
        commit: () => zombie.commit(),
        abort: () => zombie.abort(),
        offsets: () =>
          zombie.sendOffsets({
            consumerGroupId: 'zombies',
            topics: [{ topic, partitions: [{ partition: 0, offset: '1' }] }],
          }),
      }
      say({ late, error: await refusal(attempts[late]) })
      await successor.commit()
      await first.disconnect()
      await second.disconnect()
    }
  },

  /** Be a member until the test writes a line, and say each change of the assignment. */
  async member(kafka, topic, groupId) {
    const consumer = newConsumer(kafka, groupId)
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      say({ assigned: [...(payload.memberAssignment[topic] ?? [])].sort() })
    })
    await consumer.connect()
    await consumer.subscribe({ topic })
    await consumer.run({ eachMessage: async () => {} })
    await waitForWord()
    await consumer.disconnect()
  },
}

let round = 0

/** Returns whether one record was processed in a committed transaction. */
const processed = async (producer, { partition, message }, source, sink, consumerGroupId, tally) => {
  const transaction = await producer.transaction()
  await transaction.send({ topic: sink, messages: [{ value: `done ${message.value}` }] })
  const offset = Number(message.offset) + 1
  await transaction.sendOffsets({
    consumerGroupId,
    topics: [{ topic: source, partitions: [{ partition, offset: String(offset) }] }],
  })
  if (++round % 3 === 0) {
    await transaction.abort()
    tally.aborted++
    return false
  }
  await transaction.commit()
  tally.done = offset
  return true
}

const fill = async (producer, topic, word) => {
  const transaction = await producer.transaction()
  for (let i = 0; i < 3; i++) {
    await transaction.send({ topic, messages: [{ value: `${word}-${i}` }] })
  }
  return transaction
}

const [order, bootstrap, ...rest] = process.argv.slice(2)
if (!orders[order] || !bootstrap) {
  console.error('usage: kafkajs ORDER BOOTSTRAP [ARGUMENT...]')
  process.exit(2)
}
orders[order](connect(bootstrap), ...rest).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
