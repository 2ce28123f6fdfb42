// Each partition as a strip of batches, to scale by offsets or bytes. The outcome of a transactional batch follows from the
// markers behind it.

import { isMarker, judge, named, withHeld } from '../batches.js'
import { button, h, list, number, s, time } from '../dom.js'
import { explaining } from '../explaining.js'

export const title = 'Partitions'

const AT_ONCE = 8
const KEPT = 600
const HEIGHT = 34
const WIDTH_MIN = 5
const WIDTH_MAX = 120
const WORDS = {
  committed: 'committed', aborted: 'aborted', open: 'open: its transaction has not ended', plain: 'without a transaction',
  unknown: 'its marker, if it has one, is among the batches that are not shown',
}

export const words = (batch) => {
  if (isMarker(batch)) {
    return `${batch.kind} marker at offset ${number(batch.base)}, producer ${batch.producerId} epoch ${batch.epoch}: ` +
      `no reader gets it, and it takes an offset. ${time(batch.timestamp)}`
  }
  const offsets = batch.base === batch.last ? `offset ${number(batch.base)}` : `offsets ${number(batch.base)} to ${number(batch.last)}`
  const producer = batch.producerId < 0
    ? 'no producer id'
    : `producer ${batch.producerId} epoch ${batch.epoch}, sequence ${batch.sequence} to ${batch.sequence + batch.records - 1}`
  return `${number(batch.records)} record${batch.records === 1 ? '' : 's'}, ${offsets}, ${number(batch.bytes)} bytes, ${producer}: ` +
    `${WORDS[batch.outcome] ?? batch.kind}. ${time(batch.timestamp)}, leader epoch ${batch.leaderEpoch}`
}

const widthOf = (batch, scale) => {
  const size = scale === 'bytes' ? Math.sqrt(batch.bytes) / 1.5 : (batch.last - batch.base + 1) * 8
  return Math.max(isMarker(batch) ? 14 : WIDTH_MIN, Math.min(WIDTH_MAX, size))
}

/** The strip of one partition; the arrow keys walk over its batches. */
class Strip {
  constructor(topic, partition) {
    this.batches = []
    this.chosen = -1
    this.facts = h('span', { class: 'quiet' })
    this.toStable = h('button', { type: 'button', hidden: true, onclick: () => this.showStable() }, 'where readers wait')
    const { card, explain } = explaining()
    const name = `${topic}-${partition}`
    this.why = button('explain', () => explain(name, { topic, partition }), { hidden: true, 'aria-label': `explain ${name}` })
    this.kept = []
    this.stable = null
    this.detail = h('p', { class: 'detail', 'aria-live': 'polite' })
    this.picture = h('div', {
      class: 'log', tabindex: '0', role: 'application', 'aria-label': `Batches of ${topic}-${partition}; arrow keys walk over them`,
    })
    this.picture.addEventListener('keydown', (event) => this.walk(event))
    this.picture.addEventListener('pointerover', (event) => this.choose(Number(event.target.dataset?.at ?? -1)))
    this.element = h('section', { class: 'partition' },
      h('h3', {}, name, this.facts, h('div', { class: 'bar' }, this.toStable, this.why)), this.picture, this.detail, card)
  }

  walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key]
    if (!step) return
    event.preventDefault()
    this.choose(Math.max(0, Math.min(this.batches.length - 1, this.chosen + step)))
    this.box(this.chosen)?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }

  box(at) {
    return this.picture.querySelector(`rect[data-at="${at}"]`)
  }

  choose(at) {
    if (at < 0 || !this.batches[at]) return
    this.box(this.chosen)?.classList.remove('chosen')
    this.chosen = at
    this.box(at)?.classList.add('chosen')
    this.detail.textContent = words(this.batches[at])
  }

  take(piece) {
    const came = piece.batches.map(named)
    this.kept = (piece.restarted ? came : [...this.kept, ...came]).slice(-KEPT)
    const before = this.batches[this.chosen]?.base
    const [batches, gapAt] = withHeld(piece.held.map(named), this.kept, piece.last_stable)
    this.batches = judge(batches, gapAt)
    this.gapAt = gapAt
    this.chosen = piece.restarted ? -1 : this.batches.findIndex((batch) => batch.base === before)
    this.piece = piece
  }

  /** Scroll to the last stable offset, with a little of what is before it. */
  showStable() {
    this.picture.scrollLeft = Math.max(0, this.stable - 60)
  }

  draw(scale) {
    const { piece, batches } = this
    if (!piece) return
    const waits = piece.last_stable < piece.high_watermark
    this.facts.textContent = `log start ${number(piece.log_start)} · last stable offset ${number(piece.last_stable)} · ` +
      `high watermark ${number(piece.high_watermark)}${piece.log_end === null ? '' : ` · log end ${number(piece.log_end)}`}` +
      (waits ? ' · read_committed readers wait' : '')
    const atEnd = this.picture.scrollLeft + this.picture.clientWidth >= this.picture.scrollWidth - 40
    const heldBefore = this.stable
    const { shapes, x, stable } = this.shapes(scale, waits)
    this.stable = waits ? stable : null
    const width = Math.max(x + 8, stable === null ? 0 : stable + 250)
    this.picture.replaceChildren(batches.length
      ? s('svg', { width, height: HEIGHT + 34, role: 'img', 'aria-label': `${batches.length} batches` }, shapes)
      : h('p', { class: 'quiet' }, 'No batches.'))
    this.toStable.hidden = this.stable === null || this.picture.scrollWidth <= this.picture.clientWidth
    this.why.hidden = !waits
    // Scroll to where readers wait at first; later the viewer scrolls.
    if (this.stable !== null) {
      if (heldBefore === null) this.showStable()
    } else if (atEnd) {
      this.picture.scrollLeft = this.picture.scrollWidth
    }
  }

  /** What is drawn: the shapes, where the last one ends, and where the last stable offset is (null: at the end). */
  shapes(scale, waits) {
    const shapes = []
    let x = 6
    let stable = null
    for (const [at, batch] of this.batches.entries()) {
      if (this.gapAt && at === this.gapAt) {
        const missing = batch.base - this.batches[at - 1].last - 1
        shapes.push(s('text', { x: x + 4, y: 37 }, `… ${number(missing)} offsets …`))
        x += 130
      }
      const width = widthOf(batch, scale)
      if (stable === null && batch.last >= this.piece.last_stable) stable = x
      const kind = isMarker(batch) ? 'marker' : batch.outcome
      shapes.push(s('rect', { class: `box ${kind}${at === this.chosen ? ' chosen' : ''}`, 'data-at': at, x, y: 16, width, height: HEIGHT, rx: 2 },
        s('title', {}, words(batch))))
      if (isMarker(batch)) {
        shapes.push(s('text', { class: 'mark', x: x + width / 2, y: 37, 'text-anchor': 'middle' }, batch.kind === 'commit' ? 'C' : 'A'))
      }
      if (at % 8 === 0) shapes.push(s('text', { x, y: HEIGHT + 28 }, number(batch.base)))
      x += width + 2
    }
    if (waits && stable !== null) {
      shapes.push(s('line', { class: 'lso', x1: stable - 1, x2: stable - 1, y1: 2, y2: HEIGHT + 18 }),
        s('text', { class: 'lso', x: stable + 3, y: 11 }, 'last stable offset: readers stop here'))
    }
    return { shapes, x, stable }
  }
}

const LEGEND = [
  ['committed', 'committed'], ['open', 'open'], ['aborted', 'aborted'], ['plain', 'without a transaction'],
  ['unknown', 'end not shown'], ['marker', 'marker: C commit, A abort'],
]

export const show = (root, context) => {
  const strips = new Map()
  const holder = h('div')
  const topic = h('input', { type: 'text', name: 'topic', value: context.argument, placeholder: 'all topics', list: 'topics' })
  const scale = h('select', {}, h('option', { value: 'offsets' }, 'offsets'), h('option', { value: 'bytes' }, 'bytes'))
  const [before, after] = ['earlier', 'later'].map((text) => h('button', { type: 'button' }, text))
  const place = h('span', { class: 'quiet' })
  const known = h('datalist', { id: 'topics' })
  const form = h('form', {}, h('label', {}, 'Topic', topic), known, h('button', {}, 'show'),
    h('label', {}, 'Width by', scale), before, after, place)
  let [first, total, names] = [0, 0, '']

  const look = () => context.watch({
    show: ['partitions'], topic: topic.value || null, first, count: AT_ONCE, batches: names || null,
  })
  const move = (by) => {
    first = Math.max(0, Math.min(first + by, Math.max(0, total - 1)))
    look()
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    first = 0
    look()
  })
  before.addEventListener('click', () => move(-AT_ONCE))
  after.addEventListener('click', () => move(AT_ONCE))
  scale.addEventListener('change', () => strips.forEach((strip) => strip.draw(scale.value)))

  root.append(form,
    h('ul', { class: 'legend' }, LEGEND.map(([name, text]) => h('li', {}, h('i', { class: name }), text))), holder)

  const arrange = (data) => {
    total = data.total
    const end = data.first + data.partitions.length
    place.textContent = total ? `${number(data.first + 1)} to ${number(end)} of ${number(total)}` : 'There are no such partitions.'
    before.disabled = data.first === 0
    after.disabled = end >= total
    const now = data.partitions.map((each) => `${each.topic}-${each.partition}`).join(',')
    if (now === names) return
    names = now
    strips.clear()
    for (const each of data.partitions) strips.set(`${each.topic}-${each.partition}`, new Strip(each.topic, each.partition))
    holder.replaceChildren(...[...strips.values()].map((strip) => strip.element))
    list(known, [...new Set(data.partitions.map((each) => each.topic))], (name) => name, (name) => name,
      (name) => h('option', { value: name }))
    look()
  }

  return {
    watch: { show: ['partitions'], topic: context.argument || null, count: AT_ONCE },
    on(name, data) {
      if (name === 'partitions') arrange(data)
      const strip = name === 'batches' && strips.get(`${data.topic}-${data.partition}`)
      if (!strip) return
      strip.take(data)
      strip.draw(scale.value)
    },
  }
}
