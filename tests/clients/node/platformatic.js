// Runs the orders of tests/clients/contract.py with @platformatic/kafka: one order per run, one line of JSON for each event.
// Version 1 is the one for Node 20; zstd needs Node 22.
'use strict'

const { once } = require('node:events')

const PARTITIONS = 3
const RECORDS_A_CODEC = 200
const QUIET_MS = 500
const LOOK_MS = 20

const say = (what) => console.log(JSON.stringify(what))

/** Resolves when the test writes a line to our standard input, or closes it. */
const waitForWord = () => Promise.race([once(process.stdin, 'data'), once(process.stdin, 'end')])

/** The library's name of an error: the broker's error code, which is in the innermost of its nested errors. */
const nameOf = (error) => {
  if (error.apiId) return error.apiId
  for (const inner of [...(error.errors ?? []), error.cause].filter(Boolean)) {
    const name = nameOf(inner)
    if (name) return name
  }
  return ''
}

/** Returns the error name of a call that must fail. */
const refusal = async (attempt) => {
  try {
    await attempt()
  } catch (error) {
    return nameOf(error) || error.code
  }
  return ''
}

/** All functions that need the library, which is imported asynchronously as an ES module. */
const orders = ({ Admin, Consumer, Producer, compatibilityPartitioner, ConfigResourceTypes, ...library }, bootstrap) => {
  const connection = {
    clientId: 'platformatic-program',
    bootstrapBrokers: [bootstrap],
    // A broker that is being restarted takes a while.
    retries: 1000,
    retryDelay: 100,
  }

  const newProducer = (options = {}) =>
    new Producer({
      ...connection,
      idempotent: true,
      serializers: library.stringSerializers,
      partitioner: compatibilityPartitioner,
      // By default the library sends producer id 0 and epoch 0, which belong to another producer: a second instance would fail.
      ...(options.transactionalId ? { producerId: -1n, producerEpoch: -1 } : {}),
      ...options,
    })

  const newConsumer = (groupId, options = {}) =>
    new Consumer({
      ...connection,
      groupId,
      deserializers: library.stringDeserializers,
      maxWaitTime: 50,
      ...(options.groupProtocol === 'consumer'
        ? { rebalanceTimeout: 60_000 }
        : { heartbeatInterval: 100, sessionTimeout: 6_000, rebalanceTimeout: 10_000 }),
      ...options,
    })

  /** Settings of group members for the group contract. */
  const inGroup = (groupProtocol, sessionTimeout = 1_500) =>
    groupProtocol === 'classic' ? { groupProtocol, sessionTimeout } : { groupProtocol }

  const consume = (consumer, topic, isolationLevel = library.FetchIsolationLevels.READ_COMMITTED) =>
    consumer.consume({
      topics: [topic],
      mode: 'committed',
      fallbackMode: 'earliest',
      autocommit: false,
      isolationLevel,
    })

  const fill = async (producer, topic, word) => {
    const transaction = await producer.beginTransaction()
    for (let i = 0; i < 3; i++) {
      await transaction.send({ messages: [{ topic, value: `${word}-${i}` }] })
    }
    return transaction
  }

  /** Says the assignment whenever it has changed. */
  const tell = (consumer, form) => {
    let known = ''
    return setInterval(() => {
      const assigned = form(consumer.assignments ?? [])
      if (JSON.stringify(assigned) !== known) say({ assigned })
      known = JSON.stringify(assigned)
    }, LOOK_MS)
  }

  /** Close the stream first: in a consumer group, closing the consumer fails a fetch that its open stream has begun. */
  const leave = async (consumer, stream) => {
    await stream.close()
    await consumer.close(true)
  }

  let rounds = 0

  /** Process one record in a transaction. Returns false if it was aborted, as every third one is. */
  const processed = async (producer, consumer, message, sink, step) => {
    const transaction = await producer.beginTransaction()
    await transaction.send({ messages: [{ topic: sink, value: `done ${message.value}` }] })
    await step('send')
    await transaction.addConsumer(consumer)
    await transaction.addOffset(message)
    if (++rounds % 3 === 0) {
      await transaction.abort()
      return false
    }
    await transaction.commit()
    await step('commit')
    return true
  }

  /**
   * Consume, process, produce, one record at a time. `go` is called with each result and returns whether to continue. After
   * an error the loop starts again at the group's committed offsets.
   */
  const run = async (source, sink, groupId, transactionalId, options, step, done, isOver) => {
    while (!isOver()) {
      const producer = newProducer({ transactionalId })
      const consumer = newConsumer(groupId, options)
      try {
        // The first transaction calls InitProducerId, which ends an open transaction of the last producer before offsets are read.
        await (await producer.beginTransaction()).cancel()
        const stream = await consume(consumer, source)
        const watching = setInterval(() => isOver() && stream.destroy(), LOOK_MS)
        for await (const message of stream) {
          await step('poll')
          while (!isOver()) {
            if (await processed(producer, consumer, message, sink, step)) break
            done(message, false)
          }
          if (isOver()) break
          done(message, true)
        }
        clearInterval(watching)
      } catch (error) {
        console.error('beginning anew:', nameOf(error) || error)
      }
      await consumer.close(true).catch(console.error)
      await producer.close(true).catch(console.error)
    }
  }

  return {
    /** Create a topic, create it again, add partitions, describe it, delete it. */
    async admin(topic) {
      const admin = new Admin(connection)
      const wanted = {
        topics: [topic],
        partitions: PARTITIONS,
        replicas: 1,
        configs: [{ name: 'retention.ms', value: '60000' }],
      }
      await admin.createTopics(wanted)
      say({ again: await refusal(() => admin.createTopics(wanted)) })
      await admin.createPartitions({ topics: [{ name: topic, count: PARTITIONS + 1 }] })
      const metadata = await admin.metadata({ topics: [topic], forceUpdate: true })
      const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
      const [described] = await admin.describeConfigs({
        resources: [{ ...resource, configurationKeys: ['retention.ms'] }],
      })
      say({ partitions: metadata.topics.get(topic).partitionsCount, retention: described.configs[0].value })
      await admin.deleteTopics({ topics: [topic] })
      say({ left: (await admin.listTopics()).includes(topic) })
      await admin.close()
    },

    /** Produce idempotent batches with each codec. */
    async codecs(topic) {
      for (const codec of ['none', 'gzip', 'snappy', 'lz4']) {
        const producer = newProducer({ compression: codec })
        const messages = Array.from({ length: RECORDS_A_CODEC }, (_, i) => ({
          topic,
          value: `${codec} ${i} of many that are alike`,
        }))
        const { offsets } = await producer.send({ messages })
        await producer.close()
        say({ codec, offset: Number(offsets[0].offset), count: messages.length })
      }
    },

    /** Say to which partitions the keys "key-0", "key-1" and so on are sent. */
    async keys(topic, count) {
      const producer = newProducer()
      for (let i = 0; i < Number(count); i++) {
        const key = `key-${i}`
        const { offsets } = await producer.send({ messages: [{ topic, key, value: 'value' }] })
        say({ key, partition: offsets[0].partition })
      }
      await producer.close()
    },

    /** Commit one transaction, abort one, leave one open until the test writes a line, with a plain record after it. */
    async transactions(topic, transactionalId) {
      const producer = newProducer({ transactionalId })
      await (await fill(producer, topic, 'committed')).commit()
      await (await fill(producer, topic, 'aborted')).abort()
      const open = await fill(producer, topic, 'open')
      const plain = newProducer()
      await plain.send({ messages: [{ topic, value: 'plain' }] })
      await plain.close()
      say({ open: true })
      await waitForWord()
      await open.commit()
      say({ open: false })
      await producer.close()
    },

    /** Read at least COUNT records as a member of a group, and commit. */
    async read(topic, groupId, isolation, count) {
      const consumer = newConsumer(groupId)
      const stream = await consume(consumer, topic, library.FetchIsolationLevels[isolation.toUpperCase()])
      let seen = 0
      let last
      await new Promise((resolve, reject) => {
        let silence
        stream.on('error', reject)
        stream.on('data', (message) => {
          say({ value: message.value, offset: Number(message.offset) })
          last = message
          clearTimeout(silence)
          if (++seen >= Number(count)) silence = setTimeout(resolve, QUIET_MS)
        })
      })
      await last.commit()
      await leave(consumer, stream)
    },

    /** Run the loop up to the last of COUNT offsets. */
    async loop(source, sink, groupId, count) {
      const tally = { done: 0, aborted: 0 }
      const done = (message, committed) => {
        if (committed) tally.done = Number(message.offset) + 1
        else tally.aborted++
      }
      const isOver = () => tally.done >= Number(count)
      await run(source, sink, groupId, `${groupId}-loop`, {}, async () => {}, done, isOver)
      say(tally)
    },

    /** Say the errors that the first of two producers with the same id gets for each request that it tries. */
    async zombie(topic, transactionalId) {
      for (const late of ['produce', 'commit', 'abort', 'offsets']) {
        const first = newProducer({ transactionalId, retries: 0 })
        const second = newProducer({ transactionalId })
        const zombie = await fill(first, topic, 'zombie')
        const successor = await fill(second, topic, 'successor')
        const attempts = {
          produce: () => zombie.send({ messages: [{ topic, value: 'too late' }] }),
          commit: () => zombie.commit(),
          abort: () => zombie.abort(),
          offsets: () => zombie.addConsumer({ groupId: 'zombies' }),
        }
        say({ late, error: await refusal(attempts[late]) })
        await successor.commit()
        await first.close(true)
        await second.close(true)
      }
    },

    /** Be a member until the test writes a line, and say each change of the assignment. */
    async member(topic, groupId) {
      const consumer = newConsumer(groupId)
      const telling = tell(consumer, (found) => found.flatMap(({ partitions }) => partitions).sort())
      const stream = await consume(consumer, topic)
      stream.resume()
      await waitForWord()
      clearInterval(telling)
      await leave(consumer, stream)
    },

    /** The same in either protocol, for the group contract. */
    async 'group-member'(groupProtocol, groupId, topic, groupInstanceId) {
      const member = groupInstanceId === '-'
        ? inGroup(groupProtocol)
        : { ...inGroup(groupProtocol, 45_000), rebalanceTimeout: 60_000, groupInstanceId }
      const consumer = newConsumer(groupId, member)
      const name = ({ topic, partitions }) => partitions.map((partition) => `${topic}-${partition}`)
      const telling = tell(consumer, (found) => found.flatMap(name).sort())
      const stream = await consume(consumer, topic)
      stream.resume()
      await waitForWord()
      clearInterval(telling)
      await leave(consumer, stream)
    },

    /** Run the loop until the test writes a line; say "here" at the fatal step, and wait to be killed. */
    async 'group-loop'(groupProtocol, source, sink, groupId, transactionalId, fatal) {
      const [name, passages] = fatal.split(':')
      let left = Number(passages)
      const step = async (reached) => {
        if (reached !== name || --left !== 0) return
        say({ here: reached })
        await new Promise(() => {})
      }
      let over = false
      waitForWord().then(() => (over = true))
      let committed = 0
      const done = (_, isCommitted) => isCommitted && say({ committed: ++committed })
      await run(source, sink, groupId, transactionalId, inGroup(groupProtocol), step, done, () => over)
    },
  }
}

const [order, bootstrap, ...rest] = process.argv.slice(2)
import('@platformatic/kafka')
  .then(async (library) => {
    const known = orders(library, bootstrap)
    if (!known[order]) throw new Error('usage: platformatic ORDER BOOTSTRAP [ARGUMENT...]')
    await known[order](...rest)
    process.exit(0)
  })
  .catch((error) => {
    console.error(error)
    process.exit(1)
  })
