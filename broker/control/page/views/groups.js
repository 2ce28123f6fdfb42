import { h, number, table } from '../dom.js'

export const title = 'Groups'

const offset = ({ topic, partition, committed, lag, pending }) =>
  h('div', {}, `${topic}-${partition} at ${number(committed)}, lag ${number(lag)}`,
    pending && ' ', pending && h('span', { class: 'state open' }, 'another offset is in an open transaction'))

const row = (group) => h('tr', {},
  h('th', { scope: 'row' }, group.group),
  h('td', {}, group.type),
  h('td', {}, h('span', { class: `state ${group.state === 'Stable' ? 'good' : group.members ? 'open' : ''}` }, group.state)),
  h('td', {}, number(group.members)),
  h('td', {}, number(group.lag)),
  h('td', {}, group.offsets.map(offset)),
)

export const show = (root) => {
  const { element, fill } = table('Consumer groups', [
    ['Group'], ['Type'], ['State'], ['Members', 'number'], ['Lag', 'number'], ['Committed offsets'],
  ])
  const none = h('p', { class: 'lead' }, 'No group has members or offsets.')
  const more = h('p', { class: 'quiet' })
  root.append(h('p', { class: 'lead' }, 'The lag is that of a read_committed reader: from the committed offset to the last stable ',
    'offset. An offset that a producer sends within its transaction counts from the commit on.'), none, element, more)
  element.hidden = true
  return {
    watch: { show: ['groups'] },
    on(name, data) {
      if (name !== 'groups') return
      none.hidden = data.total > 0
      element.hidden = data.total === 0
      fill(data.groups, (group) => group.group, (group) => group, row)
      const left = data.total - data.groups.length
      more.textContent = left > 0 ? `${number(left)} more groups are not shown.` : ''
    },
  }
}
