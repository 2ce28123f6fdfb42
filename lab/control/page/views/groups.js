import { get, post } from '../api.js'
import { attempt, button, duration, h, number, onSubmit, table } from '../dom.js'
import { explaining } from '../explaining.js'
import { timeOf } from '../values.js'

export const title = 'Groups'

const offset = ({ topic, partition, committed, lag, pending }) =>
  h('div', {}, `${topic}-${partition} at ${number(committed)}, lag ${number(lag)}`,
    pending && ' ', pending && h('span', { class: 'state open' }, 'another offset is in an open transaction'))

const share = ({ topic, partition, start_offset, lag, records }) =>
  h('div', {}, `${topic}-${partition} from ${number(start_offset)}, lag ${number(lag)}`,
    Object.entries(records).map(([state, count]) => `, ${number(count)} ${state.toLowerCase()}`))

const before = (ending, member) => {
  if (!ending || !member || ['transaction aborted', 'compacted', 'below log start'].includes(ending)) return ending ?? member ?? '–'
  const [what, end] = { 'lock expired': ['lock', 'expired'], 'session ended': ['session', 'ended'] }[ending] ?? []
  return what ? `${what} of ${member} ${end}` : `${ending} by ${member}`
}

const rangeRow = ({ place, records }) => h('tr', {},
  h('th', { scope: 'row' }, place),
  h('td', {}, number(records.first_offset), records.last_offset > records.first_offset && ` – ${number(records.last_offset)}`),
  h('td', {}, records.state, records.in_transition && ' (being written)'),
  h('td', {}, records.member_id ?? '–'),
  h('td', {}, records.lock_ms == null ? '–' : duration(Math.max(0, records.lock_ms))),
  h('td', {}, number(records.delivery_count)),
  h('td', {}, before(records.ending, records.former_member_id)))

const row = (group) => h('tr', {},
  h('th', { scope: 'row' }, h('a', { href: `#/groups/${encodeURIComponent(group.group)}`, 'data-name': 'id' }, group.group)),
  h('td', {}, group.type),
  h('td', {}, h('span', { class: `state ${group.state === 'Stable' ? 'good' : group.members ? 'open' : ''}` }, group.state)),
  h('td', {}, number(group.members)),
  h('td', {}, number(group.lag)),
  h('td', {}, group.offsets.length ? group.offsets.map(offset) : group.shares.length ? group.shares.map(share) : '–'),
)

const memberRow = (member) => h('tr', {},
  h('th', { scope: 'row' }, member.client_id || '–', h('div', { class: 'below' }, member.member_id)),
  h('td', {}, member.host),
  h('td', {}, member.instance_id ?? '–'),
  h('td', {}, member.assignment.length ? member.assignment.join(', ') : '–'))

const resetForm = (group, topics, paint) => {
  const field = (text, control) => h('label', {}, text, control)
  const to = h('select', { name: 'to' }, ['earliest', 'latest', 'offset', 'time (UTC)'].map((each) => h('option', {}, each)))
  const at = h('input', { type: 'number', name: 'at', min: 0, size: 8, hidden: true, 'aria-label': 'Offset' })
  const when = h('input', { type: 'datetime-local', name: 'when', step: 1, size: 20, hidden: true, 'aria-label': 'Time (UTC)' })
  to.addEventListener('change', () => {
    at.hidden = to.value !== 'offset'
    when.hidden = to.value !== 'time (UTC)'
  })
  const form = h('form', {}, 'Reset offsets:',
    field('topic', h('input', { type: 'text', name: 'topic', required: true, size: 14, value: topics[0] ?? '' })),
    field('partition', h('input', { type: 'number', name: 'partition', min: 0, size: 4, placeholder: 'all' })),
    field('to', to), at, when, h('button', {}, 'reset'))
  const body = ({ topic, partition }) => ({
    topic,
    partition: partition === '' ? null : Number(partition),
    ...(to.value === 'offset' ? { to: Number(at.value) } : when.hidden ? { to: to.value } : { time_ms: timeOf(when.value) }),
  })
  onSubmit(form, async (fields) => {
    const answer = await post(`v1/groups/${encodeURIComponent(group)}/offsets`, body(fields))
    paint(answer)
    return answer.clamped
  }, (clamped) => [`The offsets of ${group} are reset.`, ...clamped.map(({ partition, asked, committed }) =>
    `Partition ${partition} does not have offset ${number(asked)}: ${number(committed)} is committed.`)].join(' '))
  return form
}

/** One group: its members, and the reset of its offsets. */
const groupSection = (group) => {
  const { element, fill } = table(`Members of ${group}`, [['Client'], ['Host'], ['Static member'], ['Assigned partitions']])
  const ranges = table(`Records of ${group} in flight`, [['Partition'], ['Offsets'], ['State'], ['Member'],
    ['Lock ends in', 'number'], ['Deliveries', 'number'], ['Before']])
  const none = h('p', { class: 'quiet' }, 'It has no members.')
  const bar = h('div')
  const { card, explain } = explaining()
  const section = h('section', { class: 'card', 'aria-label': `Group ${group}` }, h('h3', {}, `Group ${group}`),
    none, element, ranges.element, bar, h('div', { class: 'bar' }, button('explain', () => explain(`group ${group}`, { group }))), card)
  const paint = ({ summary, members }) => {
    none.hidden = members.length > 0
    element.hidden = members.length === 0
    fill(members, (each) => each.member_id, (each) => each, memberRow)
    const topics = [...new Set(summary.offsets.map((each) => each.topic))]
    if (!bar.firstChild && summary.type !== 'share') bar.append(resetForm(group, topics, paint))
    paintRanges(summary)
  }
  const paintRanges = ({ shares }) => {
    const found = shares.flatMap((each) => each.in_flight.map((records) => ({ place: `${each.topic}-${each.partition}`, records })))
    ranges.element.hidden = found.length === 0
    ranges.fill(found, (each) => `${each.place} ${each.records.first_offset}`, (each) => each, rangeRow)
  }
  element.hidden = ranges.element.hidden = none.hidden = true
  const look = () => attempt(section, async () => paint(await get(`v1/groups/${encodeURIComponent(group)}`)))
  return { section, look, paintRanges }
}

export const show = (root, context) => {
  const { element, fill } = table('Groups', [
    ['Group'], ['Type'], ['State'], ['Members', 'number'], ['Lag', 'number'], ['Offsets'],
  ])
  const none = h('p', { class: 'lead' }, 'No group has members or offsets.')
  const more = h('p', { class: 'quiet' })
  const chosen = context.argument ? groupSection(context.argument) : null
  root.append(h('p', { class: 'lead' }, 'The lag is that of a read_committed reader: from the committed offset to the last stable ',
    'offset. An offset that a producer sends within its transaction counts from the commit on. The lag of a share group is the ',
    'number of records that are neither acknowledged nor archived. A group that is chosen shows its members, and a share group ',
    'its records in flight.'), ...(chosen ? [chosen.section] : []), none, element, more)
  element.hidden = true
  let members = ''
  return {
    watch: { show: ['groups'] },
    on(name, data) {
      if (name !== 'groups') return
      none.hidden = data.total > 0
      element.hidden = data.total === 0
      fill(data.groups, (group) => group.group, (group) => group, row)
      const left = data.total - data.groups.length
      more.textContent = left > 0 ? `${number(left)} more groups are not shown.` : ''
      if (!chosen) return
      const mine = data.groups.find((group) => group.group === context.argument)
      const now = mine ? `${mine.state} ${mine.members}` : 'unknown'
      if (now !== members) chosen.look()
      else if (mine) chosen.paintRanges(mine)
      members = now
    },
  }
}
