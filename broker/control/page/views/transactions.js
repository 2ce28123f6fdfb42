import { duration, h, list, number, table } from '../dom.js'

export const title = 'Transactions'

const OPEN = ['Ongoing', 'PrepareCommit', 'PrepareAbort', 'PrepareEpochFence']

/** The colour of a state: open, ended, or in need of help. */
export const kind = (state) => state === 'Hanging' ? 'bad' : OPEN.includes(state) ? 'open' : 'good'

const heldUp = ({ topic, partition, first_offset, records }) =>
  h('div', {}, h('a', { href: `#/partitions/${encodeURIComponent(topic)}` }, `${topic}-${partition}`),
    records
      ? ` stands at offset ${number(first_offset)}, ${number(records)} before the high watermark`
      : ' waits behind an older transaction')

const row = (txn) => h('tr', {},
  h('th', { scope: 'row' }, txn.transactional_id
    ? h('a', { href: `#/timeline/${encodeURIComponent(txn.transactional_id)}`, 'data-name': 'id' }, txn.transactional_id)
    : h('span', { class: 'quiet' }, 'no coordinator knows it')),
  h('td', {}, h('span', { class: `state ${kind(txn.state)}` }, txn.state)),
  h('td', { class: 'number' }, duration(txn.open_ms)),
  h('td', { class: 'mono' }, `${txn.producer_id} / ${txn.producer_epoch}`),
  h('td', { class: 'number' }, txn.coordinator ?? '–'),
  h('td', {}, txn.partitions.join(', ') || '–'),
  h('td', {}, txn.holds_up.length ? txn.holds_up.map(heldUp) : '–'),
)

export const show = (root) => {
  const counts = h('ul', { class: 'counts', 'aria-label': 'Transactional ids by state' })
  const { element, body } = table('Transactions', [
    ['Transactional id'], ['State'], ['Open for', 'number'], ['Producer id / epoch'], ['Coordinator', 'number'],
    ['Partitions'], ['read_committed readers'],
  ])
  const none = h('p', { class: 'lead' }, 'No producer has used a transactional id yet.')
  root.append(
    h('p', { class: 'lead' }, 'Records of a transaction lie in the partitions at once. Readers with read_committed get them ',
      'when its commit marker follows, and nothing behind an open transaction until it ends.'),
    counts, none, element,
  )
  element.hidden = true
  return {
    watch: { show: ['transactions'] },
    on(name, data) {
      if (name !== 'transactions') return
      none.hidden = data.total > 0
      element.hidden = data.total === 0
      const states = Object.entries(data.by_state)
      list(counts, states, ([state]) => state, (each) => each,
        ([state, count]) => h('li', {}, h('span', { class: `state ${kind(state)}` }, `${number(count)} ${state}`)))
      list(body, data.transactions, (txn) => txn.transactional_id || `${txn.producer_id} ${txn.partitions}`,
        (txn) => [{ ...txn, open_ms: duration(txn.open_ms) }], row)
    },
  }
}
