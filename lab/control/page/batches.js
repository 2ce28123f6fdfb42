// The batches of a partition with their outcomes, which follow from the markers behind them.

/** [base offset, last offset, records, bytes, kind, producer id, epoch, sequence, timestamp, leader epoch] by name. */
export const named = ([base, last, records, bytes, kind, producerId, epoch, sequence, timestamp, leaderEpoch]) =>
  ({ base, last, records, bytes, kind, producerId, epoch, sequence, timestamp, leaderEpoch })

export const isMarker = (batch) => batch.kind === 'commit' || batch.kind === 'abort'

/**
 * Set the outcome of each batch. A marker ends its producer's open transaction before it. With `gapAt` batches are missing before that
 * index: of the transactions open there, only the one that limits the last stable offset is known not to have ended.
 */
export const judge = (batches, gapAt = 0) => {
  const open = new Map()
  batches.forEach((batch, at) => {
    if (gapAt && at === gapAt) {
      for (const [producerId, left] of open) {
        if (producerId !== batches[0].producerId) for (const each of left) each.outcome = 'unknown'
      }
    }
    if (isMarker(batch)) {
      for (const ended of open.get(batch.producerId) ?? []) {
        if (ended.outcome === 'open') ended.outcome = batch.kind === 'commit' ? 'committed' : 'aborted'
      }
      open.delete(batch.producerId)
    } else if (batch.kind === 'transactional') {
      batch.outcome = 'open'
      open.set(batch.producerId, [...(open.get(batch.producerId) ?? []), batch])
    } else {
      batch.outcome = 'plain'
    }
  })
  return batches
}

/** [batches, index of the gap], if the known batches begin after the last stable offset. */
export const withHeld = (held, kept, lastStable) => {
  if (!held.length || !kept.length || kept[0].base <= lastStable) return [kept, 0]
  const before = held.filter((batch) => batch.base < kept[0].base)
  const touches = before.length && before.at(-1).last + 1 === kept[0].base
  return [[...before, ...kept], touches ? 0 : before.length]
}
