import { post } from '../api.js'
import { button, duration, h, list, number, onSubmit, time } from '../dom.js'
import { rulesTable } from './rules.js'
import { snapshotBar } from './snapshots.js'

export const title = 'Nodes and clock'

const ADVANCES = [['10 s', '10s'], ['1 min', '1m'], ['15 min', '15m'], ['1 h', '1h'], ['7 d', '7d']]
/** The first one is the default of `odradek clock advance`, without `--only`. */
const DOMAINS = [
  ['transactions and ids', []],
  ['transactions, ids, groups and retention', ['transactions', 'ids', 'groups', 'retention']],
  ['groups', ['groups']],
  ['retention', ['retention']],
  ['all domains', ['all']],
]

const change = (node, what, past, more = {}) => button(what, () => post(`v1/nodes/${node}/${what}`), {
  'aria-label': `${what} node ${node}`, said: () => `Node ${node} ${past}.`, ...more,
})

const kill = (node) => change(node, 'kill', 'was killed', { danger: true, question: `Really kill node ${node}?` })

const buttons = ({ node, state }) => {
  if (state === 'running') {
    return [kill(node), change(node, 'stop', 'was stopped', { question: `Really stop node ${node}?` }),
      change(node, 'pause', 'is paused')]
  }
  if (state === 'paused') return [change(node, 'resume', 'goes on'), kill(node)]
  return state === 'killed' || state === 'stopped' ? [change(node, 'start', 'runs again')] : []
}

const card = (node, controls) => h('section', { class: 'card', 'aria-label': `Node ${node.node}` },
  h('h3', {}, `Node ${node.node}`,
    h('span', { class: `state ${node.state === 'running' ? 'good' : node.state === 'paused' ? 'open' : 'bad'}` }, node.state)),
  h('p', { class: 'mono' }, node.address),
  h('p', { class: 'quiet' }, `leads ${number(node.leads)} of ${number(node.replicas)} replicas, `,
    `${number(node.connections)} connections`, node.skew_ms ? `, clock off by ${node.skew_ms} ms` : '',
    node.misrouted_to === null ? '' : `, misrouted to node ${node.misrouted_to}`),
  controls && h('div', { class: 'bar' }, buttons(node)),
)

const linkForm = (nodes) => {
  const choice = (name, label, chosen) => h('select', { name, 'aria-label': label },
    nodes.map(({ node }, place) => h('option', { value: node, selected: place === chosen }, `node ${node}`)))
  const form = h('form', {}, 'Cut the link between', choice('from', 'One end of the link', 0), 'and',
    choice('to', 'The other end of the link', 1), h('button', {}, 'cut'))
  onSubmit(form, ({ from, to }) => post('v1/faults', { action: { do: 'cut', nodes: [Number(from), Number(to)] } }),
    () => 'The link is cut.')
  return form
}

const clockBar = () => {
  const which = h('select', { 'aria-label': 'Which domains advance' },
    DOMAINS.map(([text], at) => h('option', { value: at }, text)))
  return h('div', { class: 'bar' }, 'Advance', which, 'by', ADVANCES.map(([text, by]) => button(
    text, () => post('v1/clock/advance', { by, only: DOMAINS[which.value][1] }),
    { said: () => `${DOMAINS[which.value][0]}: advanced by ${text}.` },
  )))
}

export const show = (root, { product }) => {
  const nodes = h('div', { class: 'nodes' })
  const clock = h('p', {})
  const links = h('div')
  const cuts = rulesTable('Cut and slow links', ({ rule }) => ['cut', 'slow-link'].includes(rule.action.do))
  const isBroker = product() !== 'proxy'
  root.append(nodes)
  if (isBroker) {
    root.append(
      h('h3', {}, 'Links between nodes'), links, cuts.element,
      h('h3', {}, 'Clock'), clock, clockBar(),
      h('p', { class: 'lead' }, 'Timers that fall due fire before the button answers: transactions time out, ids and offsets ',
        'expire, retention deletes.'),
      h('h3', {}, 'Snapshots'), snapshotBar(),
    )
  } else {
    root.append(h('p', { class: 'lead' }, 'A proxy sees requests and responses: it does not end nodes, cut links between ',
      'them or move their clocks.'))
  }
  let known = 0
  return {
    watch: { show: isBroker ? ['faults'] : [] },
    on(name, data) {
      if (name === 'faults') cuts.on(data)
      if (name !== 'cluster') return
      list(nodes, data.nodes, (node) => node.node, (node) => node, (node) => card(node, isBroker))
      clock.textContent = `${time(data.now_ms).slice(0, 8)} UTC` +
        (data.ahead_ms ? `, ${duration(data.ahead_ms)} ahead of real time` : '')
      if (data.nodes.length === known) return
      known = data.nodes.length
      links.replaceChildren(known > 1 ? linkForm(data.nodes) : h('p', { class: 'quiet' }, 'One node has no links.'))
    },
  }
}
