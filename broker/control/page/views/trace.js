// Exchanges as they end. Only a few of many are shown: the page says how many it has passed over.

import { get, lines, post } from '../api.js'
import { h, note, number } from '../dom.js'

export const title = 'Trace'

const KEPT = 300
const PER_SECOND = 40
const OUTCOMES = ['answered', 'unanswered', 'answer_lost', 'connection_gone', 'held', 'in_progress']

const isOdd = (exchange) => !['answered', 'unanswered', 'in_progress'].includes(exchange.outcome)

export const show = (root, { signal }) => {
  const field = (name, label, size = 11) => h('label', {}, label, h('input', { type: 'text', name, size }))
  const outcome = h('select', { name: 'outcome' }, h('option', { value: '' }, 'any'),
    OUTCOMES.map((each) => h('option', { value: each }, each.replace('_', ' '))))
  const form = h('form', {}, field('api', 'API'), field('client_id', 'Client id'), field('transactional_id', 'Transactional id'),
    field('node', 'Node', 3), h('label', {}, 'Outcome', outcome), h('button', {}, 'filter'))
  const record = h('button', { type: 'button' })
  const passed = h('span', { class: 'quiet' })
  const shown = h('ol', { class: 'trace mono', 'aria-label': 'Exchanges, the newest first' })
  root.append(
    h('p', { class: 'lead' }, 'Each line is a request with its response, when it is over.'),
    h('div', { class: 'bar' }, record, passed), form, shown)
  let [running, missed, following] = [false, 0, new AbortController()]

  const say = () => {
    record.textContent = running ? 'stop recording' : 'record requests'
    passed.textContent = !running ? 'The trace records nothing.' : missed ? `${number(missed)} more were not shown.` : ''
  }
  const add = (exchange) => {
    shown.prepend(h('li', { class: isOdd(exchange) && 'odd' }, exchange.line))
    while (shown.childElementCount > KEPT) shown.lastElementChild.remove()
  }
  const follow = async () => {
    following.abort()
    following = new AbortController()
    const mine = AbortSignal.any([following.signal, signal])
    const filters = [...new FormData(form)].filter(([, value]) => value)
    const query = new URLSearchParams([...filters, ['bodies', 'false']])
    try {
      const before = await get(`v1/trace?${query}&limit=50`)
      running = before.status.running
      missed = 0
      shown.replaceChildren()
      before.exchanges.forEach(add)
      say()
      for await (const line of lines(`v1/trace/follow?${query}&per_second=${PER_SECOND}`, mine)) {
        if (line.line) add(line)
        else if (line.missed) missed += line.missed
        else if (line.status) running = line.status.running
        say()
      }
    } catch (error) {
      if (!mine.aborted) note(error.message)
    }
  }
  record.addEventListener('click', async () => {
    try {
      running = (await post(`v1/trace/${running ? 'stop' : 'start'}`)).running
      say()
    } catch (error) {
      note(error.message)
    }
  })
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    follow()
  })
  say()
  follow()
  return { watch: {} }
}
