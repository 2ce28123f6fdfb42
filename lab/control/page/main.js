// Shows one view, with one stream of its data, which is closed with the view.

import { events, get, setToken } from './api.js'
import { duration, h, number, time } from './dom.js'
import * as cluster from './views/cluster.js'
import * as groups from './views/groups.js'
import * as messages from './views/messages.js'
import * as partitions from './views/partitions.js'
import * as rules from './views/rules.js'
import * as timeline from './views/timeline.js'
import * as trace from './views/trace.js'
import * as transactions from './views/transactions.js'

const VIEWS = { transactions, partitions, messages, groups, timeline, trace, rules, cluster }
const RETRY_MS = 1000

const root = document.getElementById('view')
const connection = document.getElementById('connection')
let shown
let product = ''

const about = (summary) => {
  product = summary.product
  const running = summary.nodes.filter((node) => node.state === 'running').length
  const ahead = summary.ahead_ms ? `, ${duration(summary.ahead_ms)} ahead` : ''
  document.getElementById('cluster').textContent =
    `${product === 'proxy' ? 'proxy before ' : ''}${summary.bootstrap_servers.replaceAll(',', ', ')} · ` +
    `${running} of ${summary.nodes.length} nodes run · ${number(summary.topics)} topics, ` +
    `${number(summary.partitions)} partitions · ${time(summary.now_ms).slice(0, 8)} UTC${ahead}`
}

const query = (wanted) => {
  const show = ['cluster', ...(wanted.show ?? [])].join(',')
  const rest = Object.entries(wanted).filter(([name, value]) => name !== 'show' && value != null)
  return new URLSearchParams([['show', show], ...rest])
}

/** Follow the stream until the view is closed. Reconnects, because a broker that was killed may come back. */
const follow = async (view, wanted, signal) => {
  while (!signal.aborted) {
    try {
      for await (const [name, data] of events(`v1/watch?${query(wanted)}`, signal)) {
        connection.textContent = ''
        if (name === 'cluster') about(data)
        view.on?.(name, data)
      }
    } catch (error) {
      if (signal.aborted) return
      if (error.status === 401) return askForToken()
      if (!error.status) console.info(error)
      connection.textContent = error.status ? error.message : 'The broker does not answer.'
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

const askForToken = () => {
  const input = h('input', { type: 'password', name: 'token', autocomplete: 'off', required: true })
  const form = h('form', {}, h('label', {}, 'Token of the control port', input), h('button', {}, 'Continue'))
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    setToken(input.value)
    route()
  })
  root.replaceChildren(form)
  input.focus()
}

const route = async () => {
  const [, name = '', ...rest] = location.hash.split('/')
  const id = VIEWS[name] ? name : 'transactions'
  shown?.abort.abort()
  shown?.view.close?.()
  const abort = new AbortController()
  let stream = new AbortController()
  const context = {
    argument: rest.length ? decodeURIComponent(rest.join('/')) : '',
    signal: abort.signal,
    product: () => product,
    /** Follow another stream from now on. */
    watch(wanted) {
      stream.abort()
      stream = new AbortController()
      follow(view, wanted, AbortSignal.any([stream.signal, abort.signal]))
    },
  }
  for (const link of document.querySelectorAll('nav a')) {
    if (link.dataset.view === id) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  document.title = `${VIEWS[id].title} – Odradek`
  root.replaceChildren(h('h2', {}, VIEWS[id].title))
  const view = VIEWS[id].show(root, context)
  shown = { view, abort }
  context.watch(view.watch ?? {})
}

document.getElementById('views').append(
  ...Object.entries(VIEWS).map(([id, { title }], place) =>
    h('a', { href: `#/${id}`, 'data-view': id, 'data-title': title, accesskey: String(place + 1) }, title)),
)
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault()
  root.focus()
})
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest('input, select, textarea')) return
  const view = Object.keys(VIEWS)[Number(event.key) - 1]
  if (view) location.hash = `#/${view}`
})
addEventListener('hashchange', route)
get('v1/views/cluster').then(about, () => {}).finally(route)
