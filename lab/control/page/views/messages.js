// The records of a partition, with the outcomes of their transactions; a form to write one; the settings of the topic.

import { get, post } from '../api.js'
import { decode } from '../avro.js'
import { attempt, button, dateTime, h, list, number, onSubmit, table } from '../dom.js'
import { headersOf, shown, timeOf } from '../values.js'

export const title = 'Messages'

const AT_ONCE = 100
const FORMS = [['text', 'text'], ['json', 'JSON'], ['hex', 'hexadecimal'], ['avro', 'Avro']]
const KINDS = { committed: 'good', aborted: '', open: 'open' }

const choice = (name, options) => h('select', { name }, options.map(([value, text]) => h('option', { value }, text)))
const input = (name, more = {}) => h('input', { type: 'text', name, spellcheck: 'false', autocomplete: 'off', ...more })
const labelled = (text, field) => h('label', {}, text, field)

/** The form that selects records. */
const searchForm = (topicField, argument) => {
  const from = choice('from', [['newest', 'the newest'], ['oldest', 'the oldest'], ['offset', 'offset'], ['time', 'time (UTC)']])
  const offset = input('offset', { type: 'number', min: 0, size: 8, hidden: true, 'aria-label': 'Offset' })
  const at = input('time', { type: 'datetime-local', step: 1, size: 20, hidden: true, 'aria-label': 'Time (UTC)' })
  from.addEventListener('change', () => {
    offset.hidden = from.value !== 'offset'
    at.hidden = from.value !== 'time'
  })
  topicField.value = argument
  return h('form', { class: 'search' },
    labelled('Topic', topicField), labelled('Partition', input('partition', { type: 'number', min: 0, value: 0, size: 4 })),
    labelled('From', from), offset, at,
    labelled('Key', input('key', { size: 10 })),
    labelled('Header', input('header', { size: 12, placeholder: 'NAME or NAME=VALUE' })),
    labelled('Text', input('text', { size: 12 })),
    labelled('Show', choice('isolation', [['read_uncommitted', 'open and aborted too'], ['read_committed', 'committed only']])),
    h('button', {}, 'show'))
}

/** The query of a search, and the offset at which it begins. */
const begin = async ({ topic, partition, from, offset, time: at, isolation, text: contains, key, header }) => {
  const wanted = Object.entries({ key, header, contains }).filter(([, value]) => value)
  const query = new URLSearchParams([['partition', partition || 0], ['isolation', isolation], ...wanted])
  if (from === 'offset') query.set('offset', offset || 0)
  else if (from === 'time') query.set('time_ms', timeOf(at))
  else if (from === 'newest' && !wanted.length) {
    const { partitions } = await get(`v1/views/partitions?${new URLSearchParams({ topic, first: partition || 0, count: 1 })}`)
    const end = isolation === 'read_committed' ? partitions[0]?.last_stable : partitions[0]?.high_watermark
    query.set('offset', Math.max(0, (end ?? 0) - AT_ONCE))
  }
  return query
}

const part = (record, name, form, schema) => {
  const { text, isOdd, error } = shown(record[name], record[`${name}_base64`], form, schema && ((bytes) => decode(schema, bytes)))
  return h('pre', { class: isOdd && 'quiet', title: error }, text)
}

const row = (record, form, schema) => h('tr', {},
  h('th', { scope: 'row' }, number(record.offset)),
  h('td', {}, dateTime(record.timestamp_ms)),
  h('td', {}, part(record, 'key', form === 'avro' ? 'text' : form)),
  h('td', {}, part(record, 'value', form, schema)),
  h('td', {}, record.headers.length
    ? record.headers.map(([name, value]) => h('div', {}, h('code', {}, `${name}=${value ?? 'null'}`))) : '–'),
  h('td', {}, record.outcome ? h('span', { class: `state ${KINDS[record.outcome]}` }, record.outcome) : '–',
    record.producer_id >= 0 && h('div', { class: 'below' }, `producer ${record.producer_id}, epoch ${record.producer_epoch}`)))

/** The form that writes a record to the topic and partition of the search. */
const writeForm = (place, wrote) => {
  const id = input('transactional_id', { size: 14, placeholder: 'none' })
  const end = choice('end', [['commit', 'commit'], ['abort', 'abort'], ['none', 'leave it open']])
  const isNull = h('input', { type: 'checkbox', name: 'is_null' })
  const form = h('form', { class: 'write' },
    labelled('Key', input('key', { size: 14, placeholder: 'null' })),
    labelled('Value', h('textarea', { name: 'value', rows: 2, cols: 40, spellcheck: 'false' })),
    labelled('', isNull), h('span', {}, 'value null'),
    labelled('Headers', h('textarea', { name: 'headers', rows: 2, cols: 20, placeholder: 'NAME=VALUE a line', spellcheck: 'false' })),
    labelled('Transactional id', id), labelled('then', end), h('button', {}, 'write'))
  isNull.setAttribute('aria-label', 'The value is null')
  const endless = () => { end.disabled = !id.value }
  id.addEventListener('input', endless)
  endless()
  onSubmit(form, async ({ key, value, headers, transactional_id: transactionalId }) => {
    const { topic, partition } = place()
    const written = await post(`v1/topics/${encodeURIComponent(topic)}/records`, {
      key: key || null,
      value: isNull.checked ? null : value,
      headers: headersOf(headers),
      partition: partition === '' ? null : Number(partition),
      ...(transactionalId ? { transactional_id: transactionalId, end: end.value } : {}),
    })
    wrote(written)
    return { ...written, isOpen: transactionalId && end.value === 'none' }
  }, ({ topic, partition, offset, isOpen }) => `Written to ${topic}-${partition} at offset ${number(offset)}.` +
    (isOpen ? ' Its transaction is open: the next record with this transactional id aborts it first.' : ''))
  return form
}

const settings = (topicOf) => {
  const { element, fill } = table('Settings of the topic', [['Setting'], ['Value'], ['From']])
  const names = h('datalist', { id: 'settings' })
  const form = h('form', {}, labelled('Setting', input('setting', { list: 'settings', required: true, size: 26 })),
    labelled('Value', input('value', { size: 16 })), names)
  const path = () => `v1/topics/${encodeURIComponent(topicOf())}/configs`
  const paint = ({ configs }) => {
    const order = { topic: 0, broker: 1, default: 2 }
    const sorted = [...configs].sort((one, other) => order[one.source] - order[other.source])
    fill(sorted, (each) => each.name, (each) => each, (each) => h('tr', {},
      h('th', { scope: 'row', title: each.documentation }, h('code', {}, each.name)),
      h('td', { class: 'mono' }, each.value ?? '(hidden)'), h('td', {}, each.source)))
    list(names, configs, (each) => each.name, (each) => each.name, (each) => h('option', { value: each.name }))
  }
  const change = async (body) => paint(await post(path(), body))
  const { setting: name, value } = form.elements
  form.append(h('button', {}, 'set'), button('to its default', () => change({ delete: [name.value] }),
    { said: () => `${name.value} has its default.` }))
  onSubmit(form, () => change({ set: { [name.value]: value.value } }), () => `${name.value} is set.`)
  const details = h('details', {}, h('summary', {}, 'Settings of the topic'), form, element)
  details.addEventListener('toggle', () => details.open && attempt(form, async () => paint(await get(path()))))
  return details
}

export const show = (root, context) => {
  const topic = input('topic', { list: 'topics', required: true, size: 16 })
  const known = h('datalist', { id: 'topics' })
  const search = searchForm(topic, context.argument)
  const form = choice('form', FORMS)
  const file = h('input', { type: 'file', accept: '.avsc,.json', 'aria-label': 'Avro schema file' })
  const schemaBar = h('label', { hidden: true }, 'Schema', file)
  const place = h('span', { class: 'quiet', role: 'status' })
  const { element, fill } = table('Records', [['Offset'], ['Time (UTC)'], ['Key'], ['Value'], ['Headers'], ['Transaction']])
  element.hidden = true
  let [records, query, next, schema, running] = [[], null, 0, null, 0]

  const paint = () => {
    element.hidden = records.length === 0
    fill(records, (each) => `${each.offset}`, (each) => [each, form.value, schema !== null && form.value === 'avro' && file.value],
      (each) => row(each, form.value, schema))
  }
  /** Read until there are so many records, or to the end. A search may read much of the log. */
  const readOn = async () => {
    const mine = running += 1
    const wanted = records.length + AT_ONCE
    const path = `v1/topics/${encodeURIComponent(topic.value)}/records`
    let end = Infinity
    while (records.length < wanted && !context.signal.aborted && mine === running) {
      query.set('limit', wanted - records.length)
      const answer = await get(`${path}?${query}`)
      if (mine !== running) return
      records = [...records, ...answer.records]
      query.delete('time_ms')
      query.set('offset', answer.next_offset)
      ;[next, end] = [answer.next_offset, answer.end_offset]
      place.textContent = `${number(records.length)} record${records.length === 1 ? '' : 's'}, up to offset ${number(next)} of ${number(end)}`
      paint()
      if (next >= end) break
    }
    more.disabled = next >= end
  }
  const more = button('more', readOn, { disabled: true })
  const start = async () => {
    records = []
    query = await begin(Object.fromEntries(new FormData(search)))
    await readOn()
  }
  onSubmit(search, start)
  form.addEventListener('change', () => {
    schemaBar.hidden = form.value !== 'avro'
    paint()
  })
  file.addEventListener('change', () => attempt(schemaBar, async () => {
    schema = file.files.length ? JSON.parse(await file.files[0].text()) : null
    paint()
  }))
  const fields = search.elements
  const write = writeForm(() => ({ topic: fields.topic.value, partition: fields.partition.value }), () => attempt(search, start))
  root.append(search, known,
    h('details', {}, h('summary', {}, 'Write a record to this topic and partition'), write), settings(() => topic.value),
    h('div', { class: 'bar' }, labelled('Values as', form), schemaBar, place, more), element)
  if (topic.value) attempt(search, start)
  return {
    watch: { show: ['partitions'], count: 100 },
    on(name, data) {
      if (name !== 'partitions') return
      list(known, [...new Set(data.partitions.map((each) => each.topic))], (each) => each, (each) => each,
        (each) => h('option', { value: each }))
    },
  }
}
