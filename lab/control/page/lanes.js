// The timeline of a transactional id as swim lanes: client, coordinator, partitions; a row for each event, downwards.

import { number, s, time } from './dom.js'

const ROW = 34
const TOP = 54
const LEFT = 92
const LANE = 190
const BOX = 164

const COORDINATOR_APIS = ['FindCoordinator', 'InitProducerId', 'AddPartitionsToTxn', 'AddOffsetsToTxn', 'EndTxn']

/**
 * Without requests that change nothing: DescribeTransactions, and FindCoordinator of a client that has found it before or sends
 * nothing else.
 */
export const acts = (events) => {
  const looks = (event) => event.kind === 'exchange' && ['DescribeTransactions', 'FindCoordinator'].includes(event.api)
  const acting = new Set(events.filter((event) => event.kind === 'exchange' && !looks(event)).map((event) => event.client_id))
  const found = new Set()
  return events.filter((event) => {
    if (!looks(event) || event.outcome !== 'answered') return true
    const isNew = event.api === 'FindCoordinator' && acting.has(event.client_id) && !found.has(event.client_id)
    found.add(event.client_id)
    return isNew
  })
}

const records = (count) => `${number(count)} record${count === 1 ? '' : 's'}`
const placeOf = (event) => `${event.topic}-${event.partition}`
const isState = (event) => event.kind === 'state'

const times = (event) => event.times ? ` ×${number(event.times)}` : ''

/** One sentence for each step: what it is, and what it means; for repetitions also their number. */
export const explain = (event) =>
  sentence(event) + (event.times ? ` ${number(event.times)} times in a row, until ${time(event.until_ms)}.` : '')

const sentence = (event) => {
  switch (event.kind) {
    case 'state':
      return {
        Empty: `The coordinator gives the producer its id ${event.producer_id} in epoch ${event.producer_epoch}, and fences whatever had the transactional id before.`,
        Ongoing: `The coordinator writes down that ${event.joined.length ? event.joined.join(', ') + ' joined' : 'the transaction goes on'}: it will have to end the transaction there.`,
        PrepareCommit: 'The decision: from this record on the transaction is committed, whatever fails. The producer has its answer.',
        PrepareAbort: 'The decision: from this record on the transaction is aborted, whatever fails.',
        PrepareEpochFence: 'The coordinator aborts what an earlier instance has left open, and fences that instance.',
        CompleteCommit: 'Every partition has its marker. The producer may begin its next transaction.',
        CompleteAbort: 'Every partition has its marker. Readers with read_committed never get these records.',
      }[event.state] ?? 'The coordinator forgets the transactional id.'
    case 'batch':
      return event.offsets.length
        ? `The group's offsets lie in ${placeOf(event)}. They count when the transaction commits, and not before.`
        : `${records(event.records)} lie${event.records === 1 ? 's' : ''} in ${placeOf(event)} from offset ${number(event.offset)} on. ` +
          (event.is_transactional ? 'Readers with read_committed do not get them yet.' : 'They belong to no transaction.')
    case 'marker':
      return `The ${event.marker} marker in ${placeOf(event)} at offset ${number(event.offset)}. ` +
        (event.marker === 'COMMIT' ? 'Readers with read_committed get the records before it.' : 'Readers with read_committed pass over the records before it.')
    case 'exchange':
      return `${event.client_id ?? 'A client'} sends ${event.api} version ${event.version} to node ${event.node}: ` +
        `${event.outcome.replace('_', ' ')}${event.took_us == null ? '' : ` after ${(event.took_us / 1000).toFixed(1)} ms`}.`
  }
  return event.text
}

/** The lanes that the events need, from left to right. */
const lanesOf = (events) => {
  const places = new Set(events.filter((event) => ['batch', 'marker'].includes(event.kind)).map(placeOf))
  for (const event of events.filter(isState)) for (const joined of event.partitions) places.add(joined)
  const clients = new Set(events.filter((event) => event.kind === 'exchange' && event.from_node == null)
    .map((event) => event.client_id ?? 'client'))
  if (clients.size === 0) clients.add('client')
  return [...[...clients].map((id) => ({ id: `client ${id}`, title: id, below: 'client' })),
    { id: 'coordinator', title: 'coordinator', below: '__transaction_state' },
    ...[...places].sort().map((id) => ({ id, title: id, below: id.startsWith('__consumer_offsets') ? 'offsets' : 'partition' }))]
}

/** The lanes between which an exchange is drawn. */
const ends = (event, at, events, lanes) => {
  const first = lanes.find((lane) => lane.below === 'partition' || lane.below === 'offsets')?.id ?? 'coordinator'
  // A leader that verifies a transaction for its first batch, or a coordinator that sends markers.
  if (event.from_node != null) return event.api === 'AddPartitionsToTxn' ? [first, 'coordinator'] : ['coordinator', first]
  const from = `client ${event.client_id ?? 'client'}`
  if (COORDINATOR_APIS.includes(event.api)) return [from, 'coordinator']
  const next = events.slice(at + 1).find((each) => each.kind === 'batch' && each.transaction === event.transaction)
  return [from, next ? placeOf(next) : first]
}

const box = (x, y, name, text) => [
  s('rect', { class: `lane-box ${name}`, x: x - BOX / 2, y: y - 12, width: BOX, height: 24, rx: name.startsWith('marker') ? 12 : 4 }),
  s('text', { class: `lane-word ${name}`, x, y: y + 4, 'text-anchor': 'middle' }, text),
]

const arrow = (from, to, y, name, text) => {
  const head = to > from ? -7 : 7
  return [
    s('line', { class: `lane-arrow ${name}`, x1: from, x2: to, y1: y, y2: y }),
    s('path', { class: `lane-arrow ${name}`, d: `M${to + head} ${y - 4}L${to} ${y}L${to + head} ${y + 4}` }),
    s('text', { class: 'lane-note', x: (from + to) / 2, y: y - 5, 'text-anchor': 'middle' }, text),
  ]
}

const shapes = (event, at, y, events, lanes, x) => {
  switch (event.kind) {
    case 'state':
      return box(x.get('coordinator'), y, `state-${event.state ?? 'Forgotten'}`, event.state ?? 'forgotten')
    case 'batch':
      return box(x.get(placeOf(event)), y, event.is_transactional ? 'batch' : 'plain',
        event.offsets.length ? 'group offsets' : `${records(event.records)} @${number(event.offset)}`)
    case 'marker': {
      const to = x.get(placeOf(event))
      return [...arrow(x.get('coordinator'), to - BOX / 2, y, 'marker', ''),
        ...box(to, y, `marker ${event.marker.toLowerCase()}`, `${event.marker} @${number(event.offset)}`)]
    }
    case 'exchange': {
      const [from, to] = ends(event, at, events, lanes)
      const odd = ['answered', 'unanswered'].includes(event.outcome) ? '' : 'odd'
      return arrow(x.get(from), x.get(to), y, odd, event.api + (odd ? ` (${event.outcome.replace('_', ' ')})` : '') + times(event))
    }
  }
  return [s('line', { class: 'lane-event', x1: LEFT, x2: Math.max(...x.values()) + BOX / 2, y1: y + 6, y2: y + 6 }),
    s('text', { class: 'lane-note odd', x: LEFT + 4, y: y + 1 }, event.text + times(event))]
}

/** The picture. `chosen` is the highlighted step; `choose(at)` is called for a step that is clicked. */
export const draw = (events, chosen, choose) => {
  const lanes = lanesOf(events)
  const x = new Map(lanes.map((lane, place) => [lane.id, LEFT + LANE / 2 + place * LANE]))
  const [width, height] = [LEFT + lanes.length * LANE + 10, TOP + events.length * ROW + 12]
  const heads = lanes.flatMap(({ id, title, below }) => [
    s('text', { class: 'lane-head', x: x.get(id), y: 20, 'text-anchor': 'middle' }, title),
    s('text', { class: 'lane-note', x: x.get(id), y: 36, 'text-anchor': 'middle' }, below),
    s('line', { class: 'lane-line', x1: x.get(id), x2: x.get(id), y1: 44, y2: height }),
  ])
  const rows = events.map((event, at) => {
    const y = TOP + at * ROW + ROW / 2
    const row = s('g', { class: at === chosen ? 'lane-row chosen' : 'lane-row', 'data-at': at },
      s('title', {}, explain(event)),
      s('rect', { class: 'lane-ground', x: 0, y: y - ROW / 2, width, height: ROW }),
      s('text', { class: 'lane-note', x: 4, y: y + 4 }, time(event.time_ms)),
      shapes(event, at, y, events, lanes, x))
    row.addEventListener('click', () => choose(at))
    return row
  })
  return s('svg', { xmlns: 'http://www.w3.org/2000/svg', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${events.length} steps` },
    heads.filter((each) => each.classList.contains('lane-line')), rows, heads.filter((each) => !each.classList.contains('lane-line')))
}

const COPIED = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'font-family', 'font-size', 'font-weight', 'opacity']

/** The picture as a separate file, which contains the page's styles. */
export const standalone = (svg) => {
  const copy = svg.cloneNode(true)
  const [from, to] = [svg, copy].map((each) => [each, ...each.querySelectorAll('*')])
  from.forEach((element, at) => {
    const style = getComputedStyle(element)
    for (const name of COPIED) to[at].setAttribute(name, style.getPropertyValue(name))
  })
  const ground = s('rect', { width: '100%', height: '100%', fill: getComputedStyle(svg.parentElement).backgroundColor })
  copy.prepend(ground)
  return new XMLSerializer().serializeToString(copy)
}
