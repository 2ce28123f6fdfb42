import { post } from '../api.js'
import { button, duration, h, list, number, table } from '../dom.js'
import { explaining } from '../explaining.js'
import { holders } from '../held.js'
import { snapshotBar } from './snapshots.js'

export const title = 'Transactions'

const STATES = ['Hanging', 'Ongoing', 'PrepareCommit', 'PrepareAbort', 'PrepareEpochFence', 'CompleteCommit', 'CompleteAbort', 'Empty']
const DECIDED = ['PrepareCommit', 'PrepareAbort', 'PrepareEpochFence']

/** The colour of a state: open, decided (its markers are being written), ended, or hanging. */
export const kind = (state) =>
  state === 'Hanging' ? 'bad' : state === 'Ongoing' ? 'open' : DECIDED.includes(state) ? 'decided' : 'good'

/** Each state has a fixed position, also if no transaction is in it. */
const byState = ([one], [other]) => STATES.indexOf(one) - STATES.indexOf(other)

const heldUp = ({ topic, partition, first_offset, records }) =>
  h('div', {}, h('a', { href: `#/partitions/${encodeURIComponent(topic)}` }, `${topic}-${partition}`),
    records
      ? ` stops at offset ${number(first_offset)}, ${number(records)} before the high watermark`
      : ' waits behind an older transaction')

const heldBy = ({ id, text, at, partitions, isSure }) => h('div', {},
  `${at}${partitions.length ? ` to ${partitions.join(', ')}` : ''} ${isSure ? 'is' : 'may be'} held by `,
  h('a', { href: '#/rules' }, `rule ${id}`), ': ', h('code', {}, text))

const nameOf = (txn) => txn.transactional_id || `producer ${txn.producer_id} in ${txn.partitions}`

const abort = (txn) => {
  if (txn.transactional_id) return post(`v1/transactions/${encodeURIComponent(txn.transactional_id)}/abort`)
  const { topic, partition } = txn.holds_up[0]
  return post(`v1/partitions/${encodeURIComponent(topic)}/${partition}/abort`, { producer_id: txn.producer_id })
}

const aborted = (answer) => answer.state
  ? `${answer.transactional_id}: ${answer.state}. Its producer is fenced.`
  : `The transaction is aborted in ${answer.topic}-${answer.partition}.`

const about = (txn) => {
  if (txn.transactional_id) return { transactional_id: txn.transactional_id }
  const { topic, partition } = txn.holds_up[0]
  return { topic, partition }
}

export const show = (root, { product }) => {
  const isBroker = product() !== 'proxy'
  const counts = h('ul', { class: 'counts', 'aria-label': 'Transactional ids by state' })
  const { card, explain } = explaining()
  const { element, fill } = table('Transactions', [
    ['Transactional id'], ['State'], ['Open for', 'number'], ['Partitions'], ['read_committed readers'], ['Held by a rule'],
    ['Change'],
  ])
  const none = h('p', { class: 'lead' }, 'No producer has used a transactional id yet.')
  root.append(
    h('p', { class: 'lead' }, 'Records of a transaction lie in the partitions at once. Readers with read_committed get them ',
      'when its commit marker follows, and nothing behind an open transaction until it ends.'),
    counts, none, card, element,
  )
  if (isBroker) root.append(h('h3', {}, 'The whole broker'), snapshotBar())
  element.hidden = true

  const row = ({ txn, rules }) => h('tr', {},
    h('th', { scope: 'row' }, txn.transactional_id
      ? h('a', { href: `#/timeline/${encodeURIComponent(txn.transactional_id)}`, 'data-name': 'id' }, txn.transactional_id)
      : h('span', { class: 'quiet' }, 'no coordinator knows it'),
    h('div', { class: 'below' }, `producer ${txn.producer_id}, epoch ${txn.producer_epoch}`,
      txn.coordinator == null ? '' : `, coordinator ${txn.coordinator}`)),
    h('td', {}, h('span', { class: `state ${kind(txn.state)}` }, txn.state)),
    h('td', {}, duration(txn.open_ms)),
    h('td', {}, txn.partitions.length ? txn.partitions.map((each) => h('div', {}, each)) : '–'),
    h('td', {}, txn.holds_up.length ? txn.holds_up.map(heldUp) : '–'),
    h('td', {}, rules.length ? rules.map(heldBy) : '–'),
    h('td', {}, h('div', { class: 'bar' },
      button('explain', () => explain(nameOf(txn), about(txn)), { 'aria-label': `explain ${nameOf(txn)}` }),
      isBroker && ['open', 'bad'].includes(kind(txn.state)) && button('abort', () => abort(txn), {
        danger: true,
        'aria-label': `abort ${nameOf(txn)}`,
        question: txn.transactional_id
          ? `Really abort the transaction of ${txn.transactional_id}? Its producer is fenced.`
          : `Really write an ABORT marker for ${nameOf(txn)}?`,
        said: aborted,
      }))))

  let [summary, faults] = [null, []]
  const paint = () => {
    none.hidden = summary.total > 0
    element.hidden = summary.total === 0
    list(counts, Object.entries(summary.by_state).sort(byState), ([state]) => state, (each) => each,
      ([state, count]) => h('li', {}, h('span', { class: `state ${kind(state)}` }, `${number(count)} ${state}`)))
    const rows = summary.transactions.map((txn) => ({ txn, rules: holders(txn, faults) }))
    fill(rows, ({ txn }) => txn.transactional_id || `${txn.producer_id} ${txn.partitions}`,
      ({ txn, rules }) => [{ ...txn, open_ms: duration(txn.open_ms) }, rules], row)
  }
  return {
    watch: { show: ['transactions', 'faults'] },
    on(name, data) {
      if (name === 'transactions') summary = data
      else if (name === 'faults') faults = data.faults
      else return
      if (summary) paint()
    },
  }
}
