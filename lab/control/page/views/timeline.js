import { get } from '../api.js'
import { chosen, first as firstShown, folded } from '../events.js'
import { acts, draw, explain, standalone } from '../lanes.js'
import { attempt, h, number, time } from '../dom.js'

export const title = 'Timeline'

const EVENTS_MAX = 400

export const show = (root, context) => {
  const input = h('input', { type: 'text', name: 'id', value: context.argument, list: 'ids', required: true, spellcheck: 'false' })
  const known = h('datalist', { id: 'ids' })
  const which = h('select', { 'aria-label': 'Which transactions', hidden: true })
  const form = h('form', {}, h('label', {}, 'Transactional id', input), known, h('button', {}, 'show'), which)
  const [first, back, next, save] = ['first step', 'step back', 'step', 'save as SVG']
    .map((text) => h('button', { type: 'button', disabled: true }, text))
  const place = h('span', { class: 'quiet' })
  const step = h('p', { class: 'step', role: 'status' })
  const picture = h('div', { class: 'lanes', tabindex: '0', role: 'region', 'aria-label': 'The steps as swim lanes' })
  root.append(form, h('div', { class: 'bar' }, first, back, next, place, save), step, picture)
  let [found, events, at] = [null, [], -1]

  const goTo = (to) => {
    if (!events.length) return
    at = Math.max(0, Math.min(events.length - 1, to))
    const event = events[at]
    step.textContent = `${time(event.time_ms)} – ${explain(event)}`
    place.textContent = `step ${number(at + 1)} of ${number(events.length)}`
    for (const row of picture.querySelectorAll('.lane-row')) row.classList.toggle('chosen', Number(row.dataset.at) === at)
    picture.querySelector('.lane-row.chosen')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
    first.disabled = back.disabled = at === 0
    next.disabled = at === events.length - 1
  }

  const paint = () => {
    const wanted = which.value === '' ? null : Number(which.value)
    const all = acts(found.events)
    const mine = chosen(all, wanted)
    const steps = folded(mine)
    events = steps.slice(-EVENTS_MAX)
    picture.replaceChildren(draw(events, -1, goTo))
    save.disabled = false
    step.textContent = [
      ...found.hanging.map((each) => `${each.topic}-${each.partition} hangs from offset ${number(each.offset)} on: no coordinator will end it.`),
      steps.length > events.length ? `The newest ${number(EVENTS_MAX)} of ${number(steps.length)} steps.` : '',
      all.length > mine.length ? `${number(all.length - mine.length)} steps of other transactions, or between them, are not shown.` : '',
      'Press "step" to walk through it.',
    ].join(' ').trim()
    place.textContent = `${number(events.length)} step${events.length === 1 ? '' : 's'}`
    at = -1
    next.disabled = events.length === 0
    first.disabled = back.disabled = true
  }

  const load = async () => {
    if (!input.value) return
    const path = `v1/transactions/${encodeURIComponent(input.value)}/timeline`
    found = (await attempt(form, () => get(path)))?.timeline
    which.hidden = !found
    if (!found) {
      step.textContent = ''
      picture.replaceChildren()
      return
    }
    which.replaceChildren(h('option', { value: '' }, 'all transactions'),
      ...found.transactions.map((each) => h('option', { value: each.number }, `transaction ${each.number}: ${each.verdict}`)))
    which.value = firstShown(found.transactions)?.number ?? ''
    paint()
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault()
    const wanted = `#/timeline/${encodeURIComponent(input.value)}`
    if (location.hash === wanted) load()
    else location.hash = wanted
  })
  which.addEventListener('change', paint)
  first.addEventListener('click', () => goTo(0))
  back.addEventListener('click', () => goTo(at - 1))
  next.addEventListener('click', () => goTo(at + 1))
  save.addEventListener('click', () => {
    const file = new Blob([standalone(picture.firstElementChild)], { type: 'image/svg+xml' })
    const link = h('a', { href: URL.createObjectURL(file), download: `${input.value}.svg` })
    link.click()
    URL.revokeObjectURL(link.href)
  })
  picture.addEventListener('keydown', (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key]
    if (!by) return
    event.preventDefault()
    goTo(at + by)
  })
  step.textContent = context.argument ? 'The broker reads the logs.' : 'Choose a transactional id: the broker reads what the logs hold of it.'
  load()
  return {
    watch: { show: context.argument ? [] : ['transactions'] },
    on(name, data) {
      if (name !== 'transactions') return
      known.replaceChildren(...data.transactions.filter((txn) => txn.transactional_id)
        .map((txn) => h('option', { value: txn.transactional_id })))
    },
  }
}
