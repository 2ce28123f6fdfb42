// Runs the orders of tests/clients/contract.py with @confluentinc/kafka-javascript: one order per run, one line of JSON for
// each event.
'use strict'

const { once } = require('node:events')
const { KafkaJS } = require('@confluentinc/kafka-javascript')

const PARTITIONS = 3
const RECORDS_A_CODEC = 200
const QUIET_MS = 500

const say = (what) => console.log(JSON.stringify(what))

/** Resolves when the test writes a line to our standard input, or closes it. */
const waitForWord = () => Promise.race([once(process.stdin, 'data'), once(process.stdin, 'end')])

/** librdkafka's name of an error. */
const nameOf = (error) => error.type ?? error.name

const refusal = async (attempt) => {
  try {
    await attempt()
  } catch (error) {
    return nameOf(error)
  }
  return ''
}

// A broker that a test kills is restarted at once.
const PATIENCE = {
  'reconnect.backoff.ms': 20,
  'reconnect.backoff.max.ms': 100,
  'metadata.recovery.strategy': 'none',
  'connections.max.idle.ms': 1500,
}

const connect = (bootstrap) =>
  new KafkaJS.Kafka({ kafkaJS: { brokers: [bootstrap], logLevel: KafkaJS.logLevel.ERROR }, ...PATIENCE })

const newProducer = async (kafka, options = {}) => {
  const producer = kafka.producer({ 'enable.idempotence': true, 'linger.ms': 0, ...options })
  await producer.connect()
  return producer
}

const newConsumer = (kafka, group, options = {}) =>
  kafka.consumer({
    'group.id': group,
    'auto.offset.reset': 'earliest',
    'enable.auto.commit': false,
    'fetch.wait.max.ms': 20,
    'topic.metadata.refresh.interval.ms': 200,
    ...options,
  })

const classic = (sessionMs) => ({
  'session.timeout.ms': sessionMs,
  'heartbeat.interval.ms': 100,
  'partition.assignment.strategy': 'range',
})

const membership = (protocol, instance) => ({
  'group.protocol': protocol,
  'isolation.level': 'read_committed',
  ...(protocol === 'classic' ? classic(instance === '-' ? 1500 : 45000) : {}),
  ...(instance === '-' ? {} : { 'group.instance.id': instance }),
})

const fill = async (producer, topic, word) => {
  const transaction = await producer.transaction()
  for (let i = 0; i < 3; i++) await transaction.send({ topic, messages: [{ value: `${word}-${i}` }] })
  return transaction
}

/** Says each change of the assignment until the test writes a line. */
const stay = async (consumer, subscription, placed) => {
  let known = '[]'
  await consumer.connect()
  const look = setInterval(() => {
    const found = consumer.assignment().map(placed).sort()
    if (JSON.stringify(found) !== known) say({ assigned: found })
    known = JSON.stringify(found)
  }, 20)
  await consumer.subscribe({ topics: [subscription.startsWith('^') ? new RegExp(subscription) : subscription] })
  await consumer.run({ eachMessage: async () => {} })
  await waitForWord()
  clearInterval(look)
  await consumer.disconnect()
}

/** Says "here" at the step at which the program is to be killed, and then waits. */
const doom = (fatal) => {
  const [name, passages] = fatal.split(':')
  let left = Number(passages ?? 0)
  return async (reached) => {
    if (reached !== name || --left !== 0) return
    say({ here: reached })
    await new Promise(() => {})
  }
}

/** Whether the group has removed the member. Its partitions are revoked when it has finished its current record. */
const isOut = (error) => ['ERR_UNKNOWN_MEMBER_ID', 'ERR_FENCED_MEMBER_EPOCH'].includes(error.type)

/** Returns whether the record was processed in a committed transaction. Every third one is aborted. */
const newWorker = (producer, consumer, sink, step) => {
  let rounds = 0
  return async ({ topic, partition, message }) => {
    await step('poll')
    const transaction = await producer.transaction()
    try {
      await transaction.send({ topic: sink, messages: [{ value: `done ${message.value}` }] })
      await step('send')
      const offset = String(Number(message.offset) + 1)
      await transaction.sendOffsets({ consumer, topics: [{ topic, partitions: [{ partition, offset }] }] })
      if (++rounds % 3 !== 0) {
        await transaction.commit()
        await step('commit')
        return true
      }
    } catch (error) {
      if (error.fatal || isOut(error)) throw end(error)
      console.error('aborting:', error.message)
    }
    await transaction.abort().catch((error) => { throw end(error) })
    return false
  }
}

/** After an unrecoverable error the program ends, and the test restarts it. */
const end = (error) => {
  console.error(error)
  process.exit(1)
}

const orders = {
  async admin(kafka, topic) {
    const admin = kafka.admin()
    await admin.connect()
    const configEntries = [{ name: 'retention.ms', value: '60000' }]
    const wanted = { topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1, configEntries }] }
    await admin.createTopics(wanted)
    // createTopics returns false if the topic exists.
    say({ again: String(await admin.createTopics(wanted)) })
    const [{ partitions }] = await admin.fetchTopicMetadata({ topics: [topic] })
    say({ partitions: partitions.length })
    await admin.deleteTopics({ topics: [topic] })
    say({ left: (await admin.listTopics()).includes(topic) })
    await admin.disconnect()
  },

  async codecs(kafka, topic) {
    for (const codec of ['none', 'gzip', 'snappy', 'lz4']) {
      const producer = await newProducer(kafka, { 'compression.codec': codec, 'linger.ms': 50 })
      const messages = Array.from({ length: RECORDS_A_CODEC }, (_, i) => ({ value: `${codec} ${i} of many that are alike` }))
      const [{ baseOffset }] = await producer.send({ topic, messages })
      await producer.disconnect()
      say({ codec, offset: Number(baseOffset), count: messages.length })
    }
  },

  async transactions(kafka, topic, id) {
    const producer = await newProducer(kafka, { 'transactional.id': id })
    await (await fill(producer, topic, 'committed')).commit()
    await (await fill(producer, topic, 'aborted')).abort()
    const open = await fill(producer, topic, 'open')
    const plain = await newProducer(kafka)
    await plain.send({ topic, messages: [{ value: 'plain' }] })
    await plain.disconnect()
    say({ open: true })
    await waitForWord()
    await open.commit()
    say({ open: false })
    await producer.disconnect()
  },

  async read(kafka, topic, group, isolation, count) {
    const consumer = newConsumer(kafka, group, { ...classic(6000), 'isolation.level': isolation })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    let seen = 0
    let last = -1
    await new Promise((resolve) => {
      let silence
      consumer.run({
        eachMessage: async ({ message }) => {
          last = Number(message.offset)
          say({ value: message.value.toString(), offset: last })
          clearTimeout(silence)
          if (++seen >= Number(count)) silence = setTimeout(resolve, QUIET_MS)
        },
      })
    })
    await consumer.commitOffsets([{ topic, partition: 0, offset: String(last + 1) }])
    await consumer.disconnect()
  },

  async zombie(kafka, topic, id) {
    for (const late of ['produce', 'commit', 'abort']) {
      const first = await newProducer(kafka, { 'transactional.id': id })
      const zombie = await fill(first, topic, 'zombie')
      const second = await newProducer(kafka, { 'transactional.id': id })
      const successor = await fill(second, topic, 'successor')
      const attempts = {
        produce: () => zombie.send({ topic, messages: [{ value: 'too late' }] }),
        commit: () => zombie.commit(),
        abort: () => zombie.abort(),
      }
      say({ late, error: await refusal(attempts[late]) })
      await successor.commit()
      await second.disconnect()
      await first.disconnect().catch(() => {})
    }
  },

  member: (kafka, topic, group) =>
    stay(newConsumer(kafka, group, classic(6000)), topic, ({ partition }) => partition),

  'group-member': (kafka, protocol, group, subscription, instance) =>
    stay(newConsumer(kafka, group, membership(protocol, instance)), subscription,
      ({ topic, partition }) => `${topic}-${partition}`),

  async 'group-loop'(kafka, protocol, source, sink, group, id, fatal) {
    const consumer = newConsumer(kafka, group, membership(protocol, '-'))
    const producer = await newProducer(kafka, { 'transactional.id': id })
    const process = newWorker(producer, consumer, sink, doom(fatal))
    let committed = 0
    await consumer.connect()
    await consumer.subscribe({ topics: [source] })
    await consumer.run({
      eachMessage: async (record) => {
        // Retry here instead of throwing: after an error the client seeks, perhaps when another member has the partition.
        while (!(await process(record)));
        say({ committed: ++committed })
      },
    })
    await waitForWord()
    await consumer.disconnect()
    await producer.disconnect()
  },
}

const [order, bootstrap, ...rest] = process.argv.slice(2)
if (!orders[order] || !bootstrap) {
  console.error('usage: librdkafka ORDER BOOTSTRAP [ARGUMENT...]')
  process.exit(2)
}
orders[order](connect(bootstrap), ...rest).then(() => process.exit(0), end)
