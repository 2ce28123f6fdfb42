// Selects the events of a timeline: those of the chosen transaction, with repetitions merged into one row.

/** A key that is equal for two events that repeat each other. */
const sameness = (event) => {
  const { kind, api, version, client_id: client, node, from_node: from, outcome, text, transaction } = event
  if (kind === 'exchange') return JSON.stringify([kind, api, version, client, node, from, outcome, transaction])
  return text == null ? null : JSON.stringify([kind, node, text])
}

/**
 * The events of one transaction: from its first one to the first of a later transaction; `null` is all of them.
 * Events of no transaction (hits of rules, retries) are shown among them or after them, but not before them.
 */
export const chosen = (events, transaction) => {
  if (transaction === null) return events
  const mine = (event) => event.transaction === transaction
  const first = events.findIndex(mine)
  if (first < 0) return []
  const last = events.findLastIndex(mine)
  const next = events.findIndex((event, at) => at > last && event.transaction != null)
  return events.slice(first, next < 0 ? undefined : next).filter((event) => mine(event) || event.transaction == null)
}

/** Merges consecutive repetitions into one event with `times`, and `until_ms` of the last one. */
export const folded = (events) => {
  const found = []
  for (const event of events) {
    const before = found.at(-1)
    const same = sameness(event)
    if (same !== null && before && sameness(before) === same) {
      found[found.length - 1] = { ...before, times: (before.times ?? 1) + 1, until_ms: event.time_ms }
    } else {
      found.push(event)
    }
  }
  return found
}

/** The transaction that is shown at first: the newest one that has not ended, else the newest. */
export const first = (transactions) =>
  transactions.findLast((each) => !['committed', 'aborted'].includes(each.verdict)) ?? transactions.at(-1) ?? null
