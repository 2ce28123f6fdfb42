// Exchanges when they end. If there are many, only a few are shown, with the number of skipped ones.

import { get, lines, post } from '../api.js'
import { attempt, button, h, number, onSubmit } from '../dom.js'
import { QUIET, kindOf } from '../exchanges.js'

export const title = 'Trace'

const KEPT = 300
const PER_SECOND = 40
const OUTCOMES = ['answered', 'unanswered', 'answer_lost', 'connection_gone', 'held', 'in_progress']

/** A line; a click shows the request and the response. */
const lineOf = (exchange) => {
  const body = h('pre')
  const details = h('details', { class: kindOf(exchange) }, h('summary', {}, exchange.line), body)
  details.addEventListener('toggle', () => {
    if (!details.open || body.textContent) return
    attempt(details, async () => {
      const { exchange: found } = await get(`v1/trace/${exchange.number}`)
      const { line, request, answer, ...rest } = found
      body.textContent = JSON.stringify({ request, answer, ...rest }, null, 2)
    })
  })
  return h('li', {}, details)
}

export const show = (root, { signal }) => {
  const field = (name, label, size = 11) => h('label', {}, label, h('input', { type: 'text', name, size }))
  const outcome = h('select', { name: 'outcome' }, h('option', { value: '' }, 'any'),
    OUTCOMES.map((each) => h('option', { value: each }, each.replace('_', ' '))))
  const quiet = h('input', { type: 'checkbox', checked: true })
  const form = h('form', {}, field('api', 'API'), field('client_id', 'Client id'), field('transactional_id', 'Transactional id'),
    field('node', 'Node', 3), h('label', {}, 'Outcome', outcome), h('label', {}, quiet, 'hide Fetch and Heartbeat'),
    h('button', {}, 'filter'))
  const passed = h('span', { class: 'quiet' })
  const shown = h('ol', { class: 'trace mono', 'aria-label': 'Exchanges, the newest first' })
  let [running, missed, following] = [false, 0, new AbortController()]
  const record = button('record requests', async () => {
    running = (await post(`v1/trace/${running ? 'stop' : 'start'}`)).running
    say()
  })
  root.append(
    h('p', { class: 'lead' }, 'Each line is a request with its response, when it is over; click it for the details.'),
    h('div', { class: 'bar' }, record, passed), form, shown)

  const say = () => {
    record.textContent = running ? 'stop recording' : 'record requests'
    passed.textContent = !running ? 'The trace is off.' : missed ? `${number(missed)} more were not shown.` : ''
  }
  const add = (exchange) => {
    shown.prepend(lineOf(exchange))
    while (shown.childElementCount > KEPT) shown.lastElementChild.remove()
  }
  const follow = async () => {
    following.abort()
    following = new AbortController()
    const mine = AbortSignal.any([following.signal, signal])
    const filters = [...new FormData(form)].filter(([, value]) => value)
    // An API that the viewer filters for must not be left out.
    if (quiet.checked && !form.elements.api.value) filters.push(['without', QUIET])
    const query = new URLSearchParams([...filters, ['bodies', 'false']])
    await attempt(form, async () => {
      const before = await get(`v1/trace?${query}&limit=50`)
      running = before.status.running
      missed = 0
      shown.replaceChildren()
      before.exchanges.forEach(add)
      say()
      try {
        for await (const line of lines(`v1/trace/follow?${query}&per_second=${PER_SECOND}`, mine)) {
          if (line.line) add(line)
          else if (line.missed) missed += line.missed
          else if (line.status) running = line.status.running
          say()
        }
      } catch (error) {
        if (!mine.aborted) throw error
      }
    })
  }
  quiet.addEventListener('change', follow)
  onSubmit(form, () => void follow())
  say()
  follow()
  return { watch: {} }
}
